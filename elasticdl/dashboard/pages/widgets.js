// Small parts that several pages use.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { percent } from "./format.js";

// By shape as well as by colour.
const MARKS = {
  running: "▶",
  starting: "◌",
  stopping: "◧",
  succeeded: "✓",
  failed: "✕",
  stopped: "■",
  interrupted: "⚠",
  unreadable: "?",
  pending: "◌",
  working: "▶",
  unresponsive: "⚠",
  draining: "◧",
  ended: "■",
  killed: "✕",
  error: "✕",
  "out of memory": "✕",
  "cannot start": "✕",
  completed: "✓",
};

export function State({ state }) {
  return html`<span class=${`state state-${state.replaceAll(" ", "-")}`}><span class="mark" aria-hidden="true">${MARKS[state] || "•"}</span>${state}</span>`;
}

export function Bar({ done, total, label }) {
  const part = total ? Math.min(done / total, 1) : 0;
  return html`<div
    class="bar"
    role="progressbar"
    aria-label=${label || "progress"}
    aria-valuemin="0"
    aria-valuemax="100"
    aria-valuenow=${Math.floor(100 * part)}
  >
    <div class="bar-fill" style=${{ width: percent(part, 2) }}></div>
  </div>`;
}

export function Sparkline({ values, width = 110, height = 26 }) {
  if (!values || values.length < 2) return null;
  const low = Math.min(...values);
  const high = Math.max(...values);
  const scale = high > low ? (height - 4) / (high - low) : 0;
  const step = (width - 2) / (values.length - 1);
  const points = values.map((value, i) => `${(1 + i * step).toFixed(1)},${(height - 2 - (value - low) * scale).toFixed(1)}`);
  return html`<svg class="spark" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label="loss over time">
    <polyline points=${points.join(" ")} />
  </svg>`;
}

export function Stat({ label, value, note, title }) {
  return html`<div class="stat" title=${title || ""}>
    <dt>${label}</dt>
    <dd>${value}</dd>
    ${note ? html`<span class="note">${note}</span>` : null}
  </div>`;
}

export function Card({ title, note, children, wide, id }) {
  return html`<section class=${wide ? "card wide" : "card"} id=${id} aria-label=${title}>
    <header class="card-head">
      <h2>${title}</h2>
      ${note ? html`<span class="note">${note}</span>` : null}
    </header>
    ${children}
  </section>`;
}

export function Notice({ kind = "warning", children }) {
  return html`<p class=${`notice notice-${kind}`} role="status">${children}</p>`;
}

export function Copy({ text }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return;
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return html`<button class="quiet" type="button" onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

// Asks before something is done. `run` returns what was done, in words.
export function Confirm({ title, children, verb, danger, run, onClose }) {
  const dialog = useRef(null);
  const [result, setResult] = useState(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => dialog.current.showModal(), []);
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setResult({ text: await run() });
    } catch (error) {
      setResult({ text: error.message, failed: true });
    }
    setBusy(false);
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="confirm-title">
    <form onSubmit=${go}>
      <h2 id="confirm-title">${title}</h2>
      ${result
        ? html`<${Notice} kind=${result.failed ? "bad" : "good"}>${result.text}<//>`
        : html`<div class="dialog-body">${children}</div>`}
      <div class="buttons">
        <button type="button" onClick=${() => dialog.current.close()}>${result ? "Close" : "Cancel"}</button>
        ${result ? null : html`<button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy}>${verb}</button>`}
      </div>
    </form>
  </dialog>`;
}
