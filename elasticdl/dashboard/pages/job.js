// One job: figures, curves, nodes, parameter servers, logs, events, definition.

import { html, useEffect, useMemo, useState } from "./vendor/htm-preact.js";
import { Chart } from "./chart.js";
import { ago, bytes, clock, count, dateTime, duration, latency, percent, share, short, significant } from "./format.js";
import { act, isConnectionState, useClock, useDocument } from "./live.js";
import { Logs } from "./logs.js";
import { Timeline } from "./timeline.js";
import { Bar, Card, Confirm, Copy, Notice, Stat, State } from "./widgets.js";

const TABS = ["overview", "nodes", "servers", "logs", "events", "definition"];

export function JobPage({ name, namespace, tab = "overview", onState }) {
  const query = namespace ? `?namespace=${encodeURIComponent(namespace)}` : "";
  const path = `/api/jobs/${encodeURIComponent(name)}`;
  const [job, state] = useDocument(`${path}/stream${query}`);
  useClock();
  const known = isConnectionState(state);
  useEffect(() => onState(known ? state : "offline"), [state]);
  const base = `#/job/${namespace ? encodeURIComponent(namespace) : "-"}/${encodeURIComponent(name)}`;
  const shown = TABS.includes(tab) ? tab : "overview";
  useEffect(() => {
    const pressed = (event) => {
      if (event.target.closest("input, select, dialog, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || event.target.closest(".scroll")) return;
      const next = TABS[(TABS.indexOf(shown) + by + TABS.length) % TABS.length];
      location.replace(`${base}/${next}`);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [base, shown]);

  if (!job?.head) {
    const problem = job?.problem || (known ? null : state);
    return problem ? html`<${Missing} problem=${problem} />` : html`<p class="loading">Reading job ${name}…</p>`;
  }
  const { head } = job;
  return html`
    <p class="crumbs"><a href="#/jobs">Jobs</a> <span aria-hidden="true">/</span> ${head.namespace || head.place}</p>
    <div class="title-line">
      <h1>${head.job}</h1>
      <${State} state=${head.state} />
      <span class="space"></span>
      ${head.allows_actions ? html`<${Actions} head=${head} progress=${job.progress} path=${path + query} />` : null}
    </div>
    <p class="lead">${head.sentence}</p>
    ${job.problem ? html`<${Notice}>${job.problem}<//>` : null}
    ${head.state === "failed" && head.traceback ? html`<pre class="scroll trace">${head.traceback}</pre>` : null}
    ${head.resume_hint ? html`<p class="note">${head.resume_hint}</p>` : null}
    <div class="tabs" role="tablist" aria-label="Parts of the job">
      ${TABS.map(
        (one) => html`<a role="tab" id=${`tab-${one}`} href=${`${base}/${one}`} aria-selected=${one === shown} tabindex=${one === shown ? 0 : -1}
          >${one}${badge(one, job)}</a
        >`,
      )}
    </div>
    <div role="tabpanel" aria-labelledby=${`tab-${shown}`}>
      ${shown === "overview" ? html`<${Overview} job=${job} base=${base} />` : null}
      ${shown === "nodes" ? html`<${Nodes} job=${job} />` : null}
      ${shown === "servers" ? html`<${Servers} servers=${job.servers} />` : null}
      ${shown === "logs" ? html`<${Logs} path=${path} namespace=${namespace} names=${job.log_names || []} isActive=${head.is_active} />` : null}
      ${shown === "events" ? html`<${EventsTab} events=${job.events} />` : null}
      ${shown === "definition" ? html`<${Definition} job=${job} />` : null}
    </div>
  `;
}

function badge(tab, job) {
  const counts = { nodes: job.nodes?.filter((node) => node.state !== "ended").length, servers: job.servers?.servers.length };
  return counts[tab] ? html` <span class="badge">${counts[tab]}</span>` : null;
}

function Missing({ problem }) {
  return html`<div class="empty big"><p>${problem}</p><p><a href="#/jobs">All jobs</a></p></div>`;
}

// -- overview --------------------------------------------------------------------------------------------------

function Overview({ job, base }) {
  const { head, progress, goodput, ledger } = job;
  const done = share(progress.done, progress.total);
  const took = (head.ended || Date.now() / 1000) - (head.created || 0);
  const series = job.series;
  const hasHistory = series.time.length > 1;
  const resizes = useMemo(() => resizeMarks(series), [series]);
  const newest = job.curves.evaluations[job.curves.evaluations.length - 1];
  return html`
    ${progress.total
      ? html`<div class="progress-line">
          <${Bar} done=${progress.done} total=${progress.total} />
          <div class="progress-words">
            <strong>${done}%</strong>
            <span>${count(progress.done)} of ${count(progress.total)} samples</span>
            <span class="space"></span>
            <span>${progress.remaining_seconds != null ? `${duration(progress.remaining_seconds)} left` : head.ended ? `took ${duration(took)}` : ""}</span>
          </div>
        </div>`
      : null}
    <dl class="stats">
      <${Stat} label="Loss" value=${significant(progress.loss)} />
      ${newest ? Object.entries(newest.metrics).filter(([name]) => name !== "loss").slice(0, 2).map(([name, value]) => html`<${Stat} label=${name} value=${significant(value)} note=${`step ${count(newest.step)}`} />`) : null}
      <${Stat} label="Samples/s" value=${progress.rate == null ? "–" : short(progress.rate)} />
      <${Stat} label="Workers" value=${`${progress.workers} / ${progress.desired_workers}`} note="ready / desired" />
      ${progress.desired_servers ? html`<${Stat} label="Servers" value=${`${progress.servers} / ${progress.desired_servers}`} note="ready / desired" />` : null}
      <${Stat} label="Epoch" value=${progress.epochs ? `${Math.min(progress.epoch + 1, progress.epochs)} / ${progress.epochs}` : "–"} note=${`step ${count(progress.step)}`} />
      <${Stat} label="Goodput" value=${percent(goodput?.ratio, 0)} note="of the time trained" title="Share of the job's time that trained samples that count" />
      <${Stat} label=${head.ended ? "Took" : "Running for"} value=${duration(took)} note=${dateTime(head.created)} />
    </dl>
    <div class="cards">
      <${Card} title="Loss" note="by step"><${LossChart} curves=${job.curves} /><//>
      <${MetricCard} curves=${job.curves} />
      ${hasHistory
        ? html`<${Card} title="Throughput" note="samples per second; lines mark a change of size">
              <${Chart} label="Samples per second over time" time fromZero markers=${resizes} series=${[{ label: "samples/s", filled: true }]} data=${[series.time, series.rate]} />
            <//>
            <${Card} title="Size" note="workers over time">
              <${Chart} label="Ready and desired workers over time" time fromZero series=${[{ label: "ready", stepped: true, filled: true }, { label: "desired", stepped: true, muted: true }]} data=${[series.time, series.workers, series.desired]} />
            <//>`
        : null}
      <${ScalarCards} series=${series} />
      <${Card} title="Where the time went" note=${goodput ? `${percent(goodput.ratio, 1)} goodput` : ""}><${Goodput} goodput=${goodput} /><//>
      <${Card} title="Ledger" note=${ledger.dataset ? `data set ${ledger.dataset}` : ""}><${Ledger} ledger=${ledger} /><//>
      <${Card} title="Nodes" note="their lives, one row each" wide><${Timeline} nodes=${job.nodes} until=${head.ended || Date.now() / 1000} /><//>
      <${Card} title="Latest events" note=${html`<a href=${`${base}/events`}>all events</a>`} wide><${Events} events=${notable(job.events)} /><//>
    </div>
  `;
}

// What happens at every epoch would push out what happened once.
function notable(events) {
  const rare = events.filter((one) => !["epoch", "checkpoint", "evaluation"].includes(one.kind));
  return (rare.length ? rare : events).slice(-8);
}

// Where the number of ready workers changed.
function resizeMarks(series) {
  const marks = [];
  for (let i = 1; i < series.time.length; i += 1) {
    const [before, after] = [series.workers[i - 1], series.workers[i]];
    if (before !== after) marks.push({ x: series.time[i], text: `${before}→${after}` });
  }
  return marks;
}

function LossChart({ curves }) {
  const [steps, losses] = curves.loss;
  if (steps.length < 2) return html`<p class="empty">No loss has been reported yet.</p>`;
  const evaluated = curves.evaluations.filter((one) => one.metrics.loss != null);
  if (!evaluated.length) return html`<${Chart} label="Loss by step" series=${[{ label: "training" }]} data=${[steps, losses]} />`;
  const table = window.uPlot.join([
    [steps, losses],
    [evaluated.map((one) => one.step), evaluated.map((one) => one.metrics.loss)],
  ]);
  return html`<${Chart} label="Loss by step, of training and evaluation" series=${[{ label: "training" }, { label: "evaluation", points: evaluated.length < 60 }]} data=${table} />`;
}

function MetricCard({ curves }) {
  const names = [...new Set(curves.evaluations.flatMap((one) => Object.keys(one.metrics)))].filter((name) => name !== "loss").slice(0, 5);
  if (!names.length) return null;
  const steps = curves.evaluations.map((one) => one.step);
  const columns = names.map((name) => curves.evaluations.map((one) => one.metrics[name] ?? null));
  return html`<${Card} title="Metrics" note="of evaluations, by step">
    <${Chart} label=${`Metrics by step: ${names.join(", ")}`} series=${names.map((name) => ({ label: name, points: steps.length < 60 }))} data=${[steps, ...columns]} />
  <//>`;
}

// What workers have recorded beside the loss, such as the learning rate.
function ScalarCards({ series }) {
  return Object.entries(series.scalars)
    .filter(([, values]) => values.filter((value) => value != null).length > 1)
    .slice(0, 6)
    .map(
      ([name, values], _, all) => html`<${Card} key=${name} title=${title(name)} note="by step" wide=${all.length % 2 === 1 && name === all[0][0]}>
        <${Chart} label=${`${name} by step`} fromZero height=${150} series=${[{ label: name }]} data=${byStep(series.step, values)} />
      <//>`,
    );
}

function title(name) {
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

// Steps grow, apart from those that are trained again after a restore: the newest value counts.
function byStep(steps, values) {
  const found = new Map();
  steps.forEach((step, i) => values[i] != null && found.set(step, values[i]));
  const sorted = [...found.keys()].sort((a, b) => a - b);
  return [sorted, sorted.map((step) => found.get(step))];
}

function Goodput({ goodput }) {
  if (!goodput || !goodput.total_seconds) return html`<p class="empty">Nothing has been recorded of this job's time.</p>`;
  const lost = Object.entries(goodput.lost_seconds).filter(([, seconds]) => seconds >= 0.05);
  const parts = [["training", goodput.training_seconds], ...lost.sort((a, b) => b[1] - a[1])];
  return html`
    <div class="stack" role="img" aria-label=${parts.map(([name, seconds]) => `${name} ${duration(seconds)}`).join(", ")}>
      ${parts.map(([name, seconds]) => html`<i class=${`part part-${slug(name)}`} style=${{ width: percent(seconds / goodput.total_seconds, 2) }} title=${`${name}: ${duration(seconds)}`}></i>`)}
    </div>
    <table class="figures">
      <tbody>
        ${parts.map(
          ([name, seconds]) => html`<tr>
            <th scope="row"><i class=${`swatch part-${slug(name)}`}></i>${name === "training" ? "training that counts" : name}</th>
            <td>${duration(seconds)}</td>
            <td>${percent(seconds / goodput.total_seconds, 1)}</td>
          </tr>`,
        )}
      </tbody>
    </table>
  `;
}

function slug(name) {
  return name.replaceAll(" ", "-");
}

function Ledger({ ledger }) {
  if (!ledger.total && !ledger.rows.length) return html`<p class="empty">No data set has been announced yet.</p>`;
  return html`
    <dl class="stats small">
      <${Stat} label="Done" value=${count(ledger.done)} />
      <${Stat} label="To do" value=${count(ledger.to_do)} />
      <${Stat} label="Leased shards" value=${count(ledger.leased_shards)} />
      <${Stat} label="Retrained" value=${count(ledger.again)} />
    </dl>
    <div class="scroll rows-8">
      <table class="figures">
        <thead>
          <tr><th scope="col">epoch</th><th scope="col">done</th><th scope="col">left</th><th scope="col">retrained</th><th scope="col">skipped</th></tr>
        </thead>
        <tbody>
          ${ledger.rows.toReversed().map(
            (row) => html`<tr>
              <th scope="row">${row.dataset} ${row.epoch}/${row.epochs}</th>
              <td>${count(row.done)}</td>
              <td>${count(row.left)}</td>
              <td>${count(row.again)}</td>
              <td>${count(row.skipped)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${ledger.rows_omitted ? html`<p class="note">${count(ledger.rows_omitted)} older rows are in the audit.</p>` : null}
  `;
}

// -- nodes -----------------------------------------------------------------------------------------------------

const NODES_SHOWN = 100;

function Nodes({ job }) {
  const [text, setText] = useState("");
  const [ended, setEnded] = useState(true);
  const [shown, setShown] = useState(NODES_SHOWN);
  const nodes = job.nodes.filter(
    (node) => (ended || node.state !== "ended") && `${node.name} ${node.state} ${node.reason} ${node.message}`.toLowerCase().includes(text.toLowerCase()),
  );
  const states = {};
  for (const node of job.nodes) states[node.state] = (states[node.state] || 0) + 1;
  const live = Date.now() / 1000;
  return html`
    <${Card} title="Timeline" note=${Object.entries(states).map(([state, number]) => `${number} ${state}`).join(" · ")} wide>
      <${Timeline} nodes=${nodes} until=${job.head.ended || live} />
    <//>
    <${Card} title="Nodes" note=${`${count(nodes.length)} of ${count(job.nodes.length)}`} wide>
      <div class="filters">
        <input type="search" placeholder="Search nodes" aria-label="Search nodes" value=${text} onInput=${(event) => setText(event.target.value)} />
        <label class="check"><input type="checkbox" checked=${ended} onChange=${(event) => setEnded(event.target.checked)} /> ended ones, too</label>
      </div>
      <div class="scroll">
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">node</th><th scope="col" class="left">state</th><th scope="col">started</th><th scope="col">lived</th><th scope="col">samples/s</th>
              <th scope="col">shards</th><th scope="col">cores</th><th scope="col">memory</th><th scope="col" class="left">why</th>
            </tr>
          </thead>
          <tbody>
            ${nodes.slice(0, shown).map((node) => html`<${NodeRow} key=${node.name} node=${node} figures=${job.node_figures[node.name]} now=${job.head.ended || live} />`)}
          </tbody>
        </table>
      </div>
      ${nodes.length > shown ? html`<button class="more" type="button" onClick=${() => setShown(shown + 500)}>Show more of the ${count(nodes.length)} nodes</button>` : null}
    <//>
  `;
}

function NodeRow({ node, figures, now }) {
  const [rate, shards, cores, memory] = figures || [];
  const from = node.spans[0]?.[0];
  const to = node.state === "ended" ? node.spans[node.spans.length - 1]?.[0] : now;
  return html`<tr>
    <th scope="row">${node.name}</th>
    <td class="left"><${State} state=${node.state === "ended" && node.reason ? node.reason : node.state} /></td>
    <td>${clock(from) || "–"}</td>
    <td>${from ? duration(to - from) : "–"}</td>
    <td>${rate == null ? "–" : short(rate)}</td>
    <td>${shards == null ? "–" : count(shards)}</td>
    <td>${cores == null ? "–" : cores.toFixed(2)}</td>
    <td>${memory == null ? "–" : bytes(memory)}</td>
    <td class="left why">${node.message}</td>
  </tr>`;
}

// -- parameter servers -----------------------------------------------------------------------------------------

function Servers({ servers }) {
  if (!servers.servers.length) return html`<p class="empty big">This job has no parameter servers, or they have not reported yet.</p>`;
  const { buckets } = servers;
  const total = buckets ? Object.values(buckets.by_server).reduce((sum, one) => sum + one, 0) : 0;
  return html`
    <${Card} title="Parameter servers" note="rates and latencies of the last seconds" wide>
      <div class="scroll">
        <table class="figures">
          <thead>
            <tr>
              <th scope="col">server</th><th scope="col">version</th><th scope="col">rows</th><th scope="col">memory</th><th scope="col">pulls/s</th><th scope="col">pull p50</th>
              <th scope="col">p95</th><th scope="col">p99</th><th scope="col">pushes/s</th><th scope="col">push p50</th><th scope="col">p95</th><th scope="col">p99</th>
              <th scope="col">hit ratio</th><th scope="col">staleness</th>
            </tr>
          </thead>
          <tbody>
            ${servers.servers.map(
              (one) => html`<tr>
                <th scope="row">${one.name}</th>
                <td>${count(one.version)}</td><td>${short(one.rows)}</td><td>${bytes(one.bytes)}</td>
                <td>${short(one.pull.per_second)}</td><td>${latency(one.pull.p50)}</td><td>${latency(one.pull.p95)}</td><td>${latency(one.pull.p99)}</td>
                <td>${short(one.push.per_second)}</td><td>${latency(one.push.p50)}</td><td>${latency(one.push.p95)}</td><td>${latency(one.push.p99)}</td>
                <td>${percent(one.hit_rate, 1)}</td><td>${one.staleness.mean == null ? "–" : `${significant(one.staleness.mean)} (max ${one.staleness.max})`}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
    <//>
    <div class="cards">
      ${buckets && total
        ? html`<${Card} title="Bucket map" note=${`version ${buckets.map}${buckets.moving ? ", buckets migrate" : ""}`}>
            <div class="buckets">
              ${Object.entries(buckets.by_server).map(
                ([name, number]) => html`<div class="bucket-row"><span>${name}</span><${Bar} done=${number} total=${Math.max(...Object.values(buckets.by_server))} label=${`buckets of ${name}`} /><span class="figure">${number}</span></div>`,
              )}
            </div>
            <p class="note">${total} buckets${buckets.with_one_copy ? `, ${buckets.with_one_copy} of them without a backup` : ""}</p>
          <//>`
        : null}
      <${HotIds} servers=${servers.servers} />
    </div>
    <${Tables} servers=${servers.servers} />
  `;
}

function Tables({ servers }) {
  const rows = servers.flatMap((one) => one.tables.map((table) => [one.name, table]));
  if (!rows.length) return null;
  return html`<${Card} title="Tables" note="one row for each table and server" wide>
    <div class="scroll">
      <table class="figures">
        <thead><tr><th scope="col">table</th><th scope="col" class="left">server</th><th scope="col">rows</th><th scope="col">memory</th><th scope="col">pulled/s</th><th scope="col">pushed/s</th><th scope="col">hit ratio</th></tr></thead>
        <tbody>
          ${rows.slice(0, 300).map(
            ([server, table]) => html`<tr>
              <th scope="row">${table.table}</th><td class="left">${server}</td><td>${count(table.rows)}</td><td>${bytes(table.bytes)}</td>
              <td>${short(table.pulled_per_second)}</td><td>${short(table.pushed_per_second)}</td><td>${percent(table.hit_rate, 1)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  <//>`;
}

function HotIds({ servers }) {
  const hot = servers
    .flatMap((one) => one.tables.flatMap((table) => table.hot.map((id) => ({ ...id, table: table.table }))))
    .sort((a, b) => b.share - a.share)
    .slice(0, 12);
  if (!hot.length) return null;
  return html`<${Card} title="Hot ids" note="share of the pulls of their table">
    <div class="buckets">
      ${hot.map((one) => html`<div class="bucket-row"><span>${one.table} ${one.id}</span><${Bar} done=${one.share} total=${hot[0].share} label=${`share of ${one.id}`} /><span class="figure">${percent(one.share, 1)}</span></div>`)}
    </div>
  <//>`;
}

// -- events, definition ----------------------------------------------------------------------------------------

function EventsTab({ events }) {
  const [kind, setKind] = useState("");
  const kinds = [...new Set(events.map((one) => one.kind))].sort();
  const found = kind ? events.filter((one) => one.kind === kind) : events;
  return html`<${Card} title="Events" note="the newest first" wide>
    <div class="filters">
      <div class="segments" role="group" aria-label="Kind of event">
        ${["", ...kinds].map((one) => html`<button type="button" aria-pressed=${one === kind} onClick=${() => setKind(one)}>${one || "all"} <span class="badge">${one ? events.filter((each) => each.kind === one).length : events.length}</span></button>`)}
      </div>
    </div>
    <${Events} events=${found} />
  <//>`;
}

function Events({ events }) {
  if (!events.length) return html`<p class="empty">No event has been recorded.</p>`;
  return html`<ol class="events">
    ${events.toReversed().map((one) => html`<li class=${`event event-${one.kind}`}><time title=${dateTime(one.time)}>${clock(one.time)}</time><span class="event-kind">${one.kind}</span><span>${one.text}</span></li>`)}
  </ol>`;
}

function Definition({ job }) {
  const { definition, audit, head } = job;
  return html`
    ${definition.problem ? html`<${Notice}>${definition.problem}<//>` : null}
    <${Card} title="Command" note=${html`starts such a job <${Copy} text=${definition.command} />`} wide>
      <pre class="scroll">${definition.command}</pre>
    <//>
    <${Card} title="Audit" note=${audit ? (audit.exact ? "exact" : head.is_active ? "so far" : "not exact") : ""} wide>
      ${audit ? html`<pre class="scroll">${audit.text}</pre>` : html`<p class="empty">There is nothing to account for yet.</p>`}
    <//>
    <${Card} title="Files" wide>
      <dl class="pairs">
        <dt>logs</dt><dd>${head.logs_location}</dd>
        ${head.checkpoint ? html`<dt>newest checkpoint</dt><dd>${head.checkpoint}</dd>` : null}
        ${head.output ? html`<dt>output</dt><dd>${head.output}</dd>` : null}
        ${head.tracking.map((line) => html`<dt>tracking</dt><dd>${line}</dd>`)}
      </dl>
    <//>
    <${Card} title="Spec" note=${html`every default resolved <${Copy} text=${definition.yaml} />`} wide><pre class="scroll">${definition.yaml}</pre><//>
  `;
}

// -- actions ---------------------------------------------------------------------------------------------------

function Actions({ head, progress, path }) {
  const [asked, ask] = useState(null);
  const [size, setSize] = useState(progress.desired_workers);
  const close = () => ask(null);
  const canResume = ["stopped", "failed", "interrupted"].includes(head.state);
  return html`
    <span class="buttons">
      ${head.is_active ? html`<button type="button" onClick=${() => { setSize(progress.desired_workers); ask("scale"); }}>Scale…</button><button type="button" onClick=${() => ask("stop")}>Stop…</button>` : null}
      ${canResume ? html`<button type="button" onClick=${() => ask("resume")}>Resume…</button>` : null}
      ${head.is_active ? null : html`<button type="button" class="danger" onClick=${() => ask("delete")}>Delete…</button>`}
    </span>
    ${asked === "scale"
      ? html`<${Confirm} title=${`Scale ${head.job}`} verb="Scale" run=${() => act(path, "scale", { num_workers: Number(size) })} onClose=${close}>
          <label>Workers <input type="number" min="0" max="100000" value=${size} onInput=${(event) => setSize(event.target.value)} /></label>
        <//>`
      : null}
    ${asked === "stop"
      ? html`<${Confirm} title=${`Stop ${head.job}?`} verb="Stop the job" danger run=${() => act(path, "stop")} onClose=${close}>It saves a checkpoint and ends. It can be resumed.<//>`
      : null}
    ${asked === "resume"
      ? html`<${Confirm} title=${`Resume ${head.job}?`} verb="Resume" run=${() => act(path, "resume")} onClose=${close}>It continues from its newest checkpoint, in the background.<//>`
      : null}
    ${asked === "delete"
      ? html`<${Confirm} title=${`Delete ${head.job}?`} verb="Delete the job" danger run=${() => act(path, "delete")} onClose=${close}>Its record, logs and journal are removed, and its checkpoints inside the job's folder. This cannot be undone.<//>`
      : null}
  `;
}
