// The logs of a job: followed, searched, shown as text and nothing else.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { clock } from "./format.js";
import { openStream } from "./live.js";

const TAIL = 300;
const KEPT = 3000;

export function Logs({ path, namespace, names, isActive }) {
  const [node, setNode] = useState("");
  const [text, setText] = useState("");
  const [wanted, setWanted] = useState("");
  const [follow, setFollow] = useState(true);
  const [, redraw] = useState(0);
  const lines = useRef([]);
  const place = useRef(null);

  useEffect(() => {
    const timer = setTimeout(() => setWanted(text), 250);
    return () => clearTimeout(timer);
  }, [text]);

  useEffect(() => {
    lines.current = [];
    redraw((n) => n + 1);
    const query = new URLSearchParams({ tail: wanted ? 100000 : TAIL, node, contains: wanted });
    if (namespace) query.set("namespace", namespace);
    let number = 0;
    return openStream(
      `${path}/logs/stream?${query}`,
      {
        message: (batch) => {
          for (const line of batch) lines.current.push({ ...line, key: (number += 1) });
          if (lines.current.length > KEPT) lines.current.splice(0, lines.current.length - KEPT);
          redraw((n) => n + 1);
        },
        end: (_, source) => source.close(),
        restart: () => {
          lines.current = [];
        },
      },
      () => {},
    );
  }, [path, namespace, node, wanted]);

  useEffect(() => {
    if (follow && place.current) place.current.scrollTop = place.current.scrollHeight;
  });

  // Scrolling up ends the following; at the end of the lines it begins again.
  const scrolled = () => {
    if (!place.current) return;
    const { scrollTop, scrollHeight, clientHeight } = place.current;
    setFollow(scrollHeight - scrollTop - clientHeight < 30);
  };
  return html`<section class="card wide logs" aria-label="Logs">
    <div class="filters">
      <select aria-label="Node" value=${node} onChange=${(event) => setNode(event.target.value)}>
        <option value="">all nodes</option>
        ${names.map((name) => html`<option value=${name}>${name}</option>`)}
      </select>
      <input type="search" placeholder="Search the logs" aria-label="Search the logs" value=${text} onInput=${(event) => setText(event.target.value)} />
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> follow</label>
      <span class="note">${lines.current.length ? `${lines.current.length} lines` : ""}${isActive ? ", live" : ""}</span>
    </div>
    <div class="log scroll" ref=${place} onScroll=${scrolled} tabindex="0" role="log" aria-label="Lines of the logs">
      ${lines.current.length === 0 ? html`<p class="empty">${wanted ? "No line has this text." : "No line has been written yet."}</p>` : null}
      ${lines.current.map(
        (line) => html`<div class="line" key=${line.key}><time>${clock(line.time)}</time>${node ? null : html`<span class="line-node">${line.node}</span>`}<span class="line-text"><${Marked} text=${line.text} words=${wanted} /></span></div>`,
      )}
    </div>
  </section>`;
}

// Marks what was searched for. Lines are text: nothing of them is read as HTML.
function Marked({ text, words }) {
  if (!words) return text;
  const parts = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(words.toLowerCase()); at >= 0; at = lower.indexOf(words.toLowerCase(), from)) {
    parts.push(text.slice(from, at), html`<mark>${text.slice(at, at + words.length)}</mark>`);
    from = at + words.length;
  }
  parts.push(text.slice(from));
  return html`${parts}`;
}
