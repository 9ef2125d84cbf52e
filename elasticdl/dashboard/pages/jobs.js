// All jobs: filters, and a row each.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { ago, count, dateTime, duration, share, short, significant } from "./format.js";
import { isConnectionState, useClock, useDocument } from "./live.js";
import { Bar, Notice, Sparkline, State } from "./widgets.js";

const PAGE = 100;
const GROUPS = {
  all: null,
  active: ["running", "starting", "stopping"],
  succeeded: ["succeeded"],
  failed: ["failed", "interrupted", "unreadable"],
  stopped: ["stopped"],
};

export function JobsPage({ onState }) {
  const [jobs, state] = useDocument("/api/stream");
  const [group, setGroup] = useState("all");
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  const [shown, setShown] = useState(PAGE);
  const search = useRef(null);
  useClock();
  useEffect(() => onState(isConnectionState(state) ? state : "offline"), [state]);
  useEffect(() => setShown(PAGE), [group, kind, text]);
  useEffect(() => {
    const pressed = (event) => {
      if (event.target.closest("input, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "/") {
        event.preventDefault();
        search.current?.focus();
      }
      if (event.key === "j" || event.key === "k") moveFocus(event.key === "j" ? 1 : -1);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);

  const problem = jobs?.problem;
  const rows = useMemo(
    () =>
      Object.entries(jobs || {})
        .filter(([key]) => key !== "problem")
        .map(([, row]) => row)
        .sort((a, b) => (b.created || 0) - (a.created || 0)),
    [jobs],
  );
  if (jobs === null && !isConnectionState(state)) return html`<h1>Jobs</h1><${Notice}>${state}<//>`;
  if (jobs === null) return html`<p class="loading">Reading the jobs…</p>`;
  const counts = Object.fromEntries(
    Object.entries(GROUPS).map(([name, states]) => [name, states ? rows.filter((row) => states.includes(row.state)).length : rows.length]),
  );
  const kinds = [...new Set(rows.map((row) => row.kind).filter(Boolean))].sort();
  const found = rows.filter(
    (row) =>
      (!GROUPS[group] || GROUPS[group].includes(row.state)) &&
      (!kind || row.kind === kind) &&
      (!text || `${row.job} ${row.sentence} ${row.place}`.toLowerCase().includes(text.toLowerCase())),
  );
  return html`
    <div class="title-line">
      <h1>Jobs</h1>
      <span class="note">${count(rows.length)} on record, ${count(counts.active)} active</span>
    </div>
    ${problem ? html`<${Notice}>Jobs of the cluster are missing, or out of date: ${problem}<//>` : null}
    <div class="filters">
      <div class="segments" role="group" aria-label="State">
        ${Object.keys(GROUPS).map(
          (name) => html`<button type="button" aria-pressed=${group === name} onClick=${() => setGroup(name)}>
            ${name} <span class="badge">${counts[name]}</span>
          </button>`,
        )}
      </div>
      ${kinds.length > 1
        ? html`<select aria-label="Kind" value=${kind} onChange=${(event) => setKind(event.target.value)}>
            <option value="">every kind</option>
            ${kinds.map((name) => html`<option value=${name}>${name}</option>`)}
          </select>`
        : null}
      <input
        ref=${search}
        type="search"
        placeholder="Search jobs  ( / )"
        aria-label="Search jobs"
        value=${text}
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${(event) => event.key === "Escape" && event.target.blur()}
      />
    </div>
    ${rows.length === 0
      ? html`<div class="empty big">
          <p>There are no jobs yet.</p>
          <p class="note">Start one with <code>elasticdl train</code>. It appears here at once.</p>
        </div>`
      : found.length === 0
        ? html`<p class="empty big">No job matches.</p>`
        : html`<div class="jobs" role="table" aria-label="Jobs">
            <div class="jobs-head" role="row">
              ${["Job", "State", "Progress", "Loss", "Metric", "Started", "Took"].map(
                (name) => html`<span role="columnheader" class=${name === "Took" || name === "Started" ? "right" : ""}>${name}</span>`,
              )}
            </div>
            ${found.slice(0, shown).map((row) => html`<${JobRow} key=${`${row.namespace}/${row.job}`} row=${row} />`)}
          </div>`}
    ${found.length > shown
      ? html`<button class="more" type="button" onClick=${() => setShown(shown + PAGE)}>Show more of the ${count(found.length)} jobs</button>`
      : null}
  `;
}

function moveFocus(by) {
  const links = [...document.querySelectorAll(".job-link")];
  const index = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, index + by))]?.focus();
}

function metricOf(row) {
  const names = Object.keys(row.metrics);
  const name = names.find((one) => one !== "loss") || names[0];
  return name ? [name, row.metrics[name]] : null;
}

function JobRow({ row }) {
  const metric = metricOf(row);
  const done = share(row.done, row.total);
  const took = row.created ? (row.ended || (row.state === "interrupted" ? null : Date.now() / 1000)) : null;
  const address = `#/job/${row.namespace ? encodeURIComponent(row.namespace) : "-"}/${encodeURIComponent(row.job)}`;
  return html`<div class="job-row" role="row">
    <span role="cell" class="cell-job">
      <a class="job-link" href=${address}>${row.job}</a>
      <span class="note sentence">${row.sentence}</span>
    </span>
    <span role="cell" class="cell-state"><${State} state=${row.state} /><span class="note">${[row.kind, row.namespace].filter(Boolean).join(" · ")}</span></span>
    <span role="cell" class="cell-progress">
      ${row.total
        ? html`<${Bar} done=${row.done} total=${row.total} /><span class="note">${done}%${row.remaining_seconds != null ? ` · ${duration(row.remaining_seconds)} left` : ""}${row.rate ? ` · ${short(row.rate)}/s` : ""}</span>`
        : html`<span class="note">–</span>`}
    </span>
    <span role="cell" class="cell-loss"><${Sparkline} values=${row.spark} /><span class="figure">${row.loss == null ? "" : significant(row.loss)}</span></span>
    <span role="cell" class="cell-metric">${metric ? html`<span class="figure">${significant(metric[1])}</span><span class="note">${metric[0]}</span>` : html`<span class="note">–</span>`}</span>
    <span role="cell" class="right" title=${dateTime(row.created)}>${ago(row.created)}</span>
    <span role="cell" class="right">${took ? duration(took - row.created) : "–"}</span>
  </div>`;
}
