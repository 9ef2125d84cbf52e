// The cluster: machines with the pods on them, who waits and why, what the planner decided, and what if.

import { html, useEffect, useMemo, useState } from "./vendor/htm-preact.js";
import { Chart } from "./chart.js";
import { ago, bytes, count, dateTime, percent, short } from "./format.js";
import { isConnectionState, useClock, useDocument } from "./live.js";
import { Bar, Card, Notice, Stat } from "./widgets.js";

const MACHINE = "machine/";
const PAGE = 120;
// Tiles of one group on a machine before they become a number.
const TILES = 16;
const COLOURS = 4;
const OTHERS = "other";
const KINDS = { Admit: "▶ start", Grow: "▲ grow", Shrink: "▼ shrink", Move: "⇄ move", Preempt: "■ stop", Hold: "◌ wait", Reject: "✕ reject" };

function amount(name, value) {
  return name.includes("memory") || name.includes("storage") ? bytes(value) : short(value);
}

// A, B, … Z, A1, B1, …: distinguishes jobs without colours, too.
function mark(index) {
  return `${String.fromCharCode(65 + (index % 26))}${index >= 26 ? Math.floor(index / 26) : ""}`;
}

function address(job, namespace) {
  return `#/job/${encodeURIComponent(namespace)}/${encodeURIComponent(job)}`;
}

function JobLink({ job, namespace }) {
  return html`<a href=${address(job, namespace)}>${job}</a>${namespace === "default" ? null : html` <span class="note">${namespace}</span>`}`;
}

export function ClusterPage({ onState }) {
  const [cluster, state] = useDocument("/api/cluster/stream");
  useClock();
  useEffect(() => onState(isConnectionState(state) ? state : "offline"), [state]);
  if (cluster === null && !isConnectionState(state)) return html`<h1>Cluster</h1><${Notice}>${state}<//>`;
  if (cluster === null) return html`<p class="loading">Reading the cluster…</p>`;
  if (!cluster.summary) return html`<h1>Cluster</h1><${Notice}>${cluster.problem || "The cluster cannot be read."}<//>`;
  const machines = Object.entries(cluster)
    .filter(([key]) => key.startsWith(MACHINE))
    .map(([, machine]) => machine)
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const { summary } = cluster;
  return html`
    <div class="title-line">
      <h1>Cluster</h1>
      <span class="note">${count(summary.machines)} machines, ${count(summary.open)} take pods; ${count(summary.pods)} pods</span>
    </div>
    ${cluster.problem ? html`<${Notice}>This page is out of date: ${cluster.problem}<//>` : null}
    <dl class="stats">
      ${Object.entries(summary.resources).map(
        ([name, { requested, total }]) =>
          html`<${Stat} label=${name} value=${percent(requested / total)} note=${`${amount(name, requested)} of ${amount(name, total)} requested`} />`,
      )}
    </dl>
    <div class="cards">
      <${Queue} rows=${cluster.queue} />
      <${Utilization} series=${cluster.utilization} />
    </div>
    <${Machines} machines=${machines} />
    <${Decisions} rows=${cluster.decisions} />
    <${WhatIf} />
  `;
}

function Queue({ rows }) {
  return html`<${Card} title="Waiting" note=${rows.length > 1 ? `${count(rows.length)} jobs, the oldest first` : ""}>
    ${rows.length === 0
      ? html`<p class="empty">No job waits.</p>`
      : html`<div class="scroll"><table class="figures">
          <thead><tr><th scope="col">job</th><th scope="col">since</th><th scope="col">workers</th><th scope="col" class="left">why</th></tr></thead>
          <tbody>${rows.map(
            (row) => html`<tr>
              <th scope="row"><${JobLink} ...${row} /></th>
              <td title=${dateTime(row.since)}>${ago(row.since)}</td><td>${row.wants || "–"}</td><td class="why left">${row.reason}</td>
            </tr>`,
          )}</tbody>
        </table></div>`}
  <//>`;
}

function Utilization({ series }) {
  const names = Object.keys(series.shares);
  return html`<${Card} title="Utilisation" note="requested part, since this dashboard looks">
    ${series.times.length < 2
      ? html`<p class="empty">The curve begins now.</p>`
      : html`<${Chart}
          label="Requested part of each resource over time"
          series=${names.map((label) => ({ label }))}
          data=${[series.times, ...names.map((name) => series.shares[name])]}
          time=${true}
          fromZero=${true}
        />`}
  <//>`;
}

function Machines({ machines }) {
  const [text, setText] = useState("");
  const [shown, setShown] = useState(PAGE);
  const jobs = useMemo(() => {
    const sizes = new Map();
    for (const machine of machines) for (const tile of machine.tiles) if (tile.job !== OTHERS) sizes.set(tile.job, (sizes.get(tile.job) || 0) + tile.count);
    return new Map([...sizes].sort(([a], [b]) => a.localeCompare(b)).map(([job, size], index) => [job, { index, size }]));
  }, [machines]);
  const wanted = text.toLowerCase();
  const found = machines.filter((machine) => !wanted || machine.name.toLowerCase().includes(wanted) || machine.state.includes(wanted) || machine.tiles.some((tile) => tile.job.includes(wanted)));
  return html`<${Card} title="Machines" note="one tile a pod" wide=${true}>
    ${machines.length > 8
      ? html`<div class="filters"><input type="search" placeholder="Search machines, states, jobs" aria-label="Search machines" value=${text} onInput=${(event) => setText(event.target.value)} /></div>`
      : null}
    ${jobs.size
      ? html`<ul class="tile-legend">
          ${[...jobs].slice(0, 40).map(([job, { index, size }]) => html`<li><${Tile} index=${index} />${job} <span class="note">${size} pods</span></li>`)}
          <li><span class="tile">·</span>others</li>
        </ul>`
      : null}
    <div class="machines">${found.slice(0, shown).map((machine) => html`<${Machine} key=${machine.name} machine=${machine} jobs=${jobs} />`)}</div>
    ${found.length > shown ? html`<button class="more" type="button" onClick=${() => setShown(shown + PAGE)}>Show more of the ${count(found.length)} machines</button>` : null}
  <//>`;
}

function Machine({ machine, jobs }) {
  const [name, [requested, total]] = Object.entries(machine.resources).sort(([, a], [, b]) => b[0] / b[1] - a[0] / a[1])[0] || ["cpu", [0, 1]];
  const parts = Object.entries(machine.resources).map(([key, [used, all]]) => `${key}: ${amount(key, used)} of ${amount(key, all)}`);
  return html`<div class=${machine.state === "ready" ? "machine" : "machine machine-closed"} title=${parts.join("\n")}>
    <div class="machine-name">${machine.name}<span class="note">${machine.state === "ready" ? "" : `⚠ ${machine.state}, `}${machine.is_revocable ? "spot, " : ""}${name} ${percent(requested / total)}</span></div>
    <${Bar} done=${requested} total=${total} label=${`${name} requested on ${machine.name}`} />
    <div class="tiles">
      ${machine.tiles.flatMap(({ job, role, count: size }) => {
        const index = jobs.get(job)?.index;
        const title = `${size} × ${job}${role ? ` ${role}` : ""}`;
        return size > TILES
          ? [html`<${Tile} index=${index} title=${title} times=${size} />`]
          : Array.from({ length: size }, () => html`<${Tile} index=${index} title=${title} />`);
      })}
    </div>
  </div>`;
}

function Tile({ index, title, times }) {
  const letter = index == null ? "·" : mark(index);
  const colour = index == null ? "tile" : `tile tile-${1 + (index % COLOURS)}`;
  return html`<span class=${colour} title=${title || ""}>${letter}${times ? ` ×${times}` : ""}</span>`;
}

function Decisions({ rows }) {
  return html`<${Card} title="Decisions of the planner" note="the latest first" wide=${true}>
    ${rows.length === 0
      ? html`<p class="empty">None yet. A controller decides about TrainingJobs.</p>`
      : html`<div class="scroll"><table class="figures">
          <thead><tr><th scope="col">job</th><th scope="col">when</th><th scope="col" class="left">decision</th><th scope="col">workers</th><th scope="col" class="left">why</th></tr></thead>
          <tbody>${rows.map(
            (row) => html`<tr>
              <th scope="row"><${JobLink} ...${row} /></th>
              <td title=${dateTime(row.time)}>${ago(row.time)}</td><td class="left">${KINDS[row.kind] || row.kind}</td>
              <td>${row.before === row.after ? row.after : `${row.before} → ${row.after}`}</td><td class="why left">${row.sentence}</td>
            </tr>`,
          )}</tbody>
        </table></div>`}
  <//>`;
}

const FIELDS = [
  ["min", "workers, at least", "1"],
  ["max", "at most", "4"],
  ["cpu", "CPU each", "1"],
  ["memory", "memory each", "1Gi"],
  ["gpu", "GPUs each", ""],
  ["priority", "priority", "0"],
];

function WhatIf() {
  const [answer, setAnswer] = useState(null);
  const ask = async (event) => {
    event.preventDefault();
    const given = [...new FormData(event.target)].filter(([, value]) => value !== "");
    try {
      const reply = await fetch(`/api/cluster/what_if?${new URLSearchParams(given)}`);
      setAnswer(await reply.json());
    } catch {
      setAnswer({ error: "The dashboard does not answer." });
    }
  };
  return html`<${Card} title="What if" note="nothing is submitted" wide=${true}>
    <form class="what-if" onSubmit=${ask}>
      ${FIELDS.map(([name, label, value]) => html`<label>${label}<input name=${name} defaultValue=${value} autocomplete="off" /></label>`)}
      <button class="primary" type="submit">Ask the planner</button>
    </form>
    ${answer === null
      ? null
      : answer.error
        ? html`<${Notice} kind="bad">${[answer.error, answer.hint].filter(Boolean).join(" ")}<//>`
        : html`<${Notice} kind=${answer.job.size ? "good" : "warning"}>${answer.job.reason}<//>
            ${answer.others.length
              ? html`<ul>${answer.others.map((each) => html`<li><strong>${each.job}</strong>: ${each.previous_size} → ${each.size}. ${each.reason}</li>`)}</ul>`
              : html`<p class="note">No other job would change.</p>`}`}
  <//>`;
}
