// The lives of nodes, one row each, drawn on a canvas: a thousand rows are no burden. The table of nodes has the same.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { clock, duration } from "./format.js";

const ROW = 18;
const MOST_HEIGHT = 520;
const LABELS = 84;
const AXIS = 20;
const FAILED = ["killed", "error", "out of memory", "cannot start"];

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    working: get("--node-working"),
    starting: get("--node-starting"),
    pending: get("--node-pending"),
    unresponsive: get("--bad"),
    draining: get("--series-2"),
    text: get("--muted"),
    line: get("--line"),
    bad: get("--bad"),
    ok: get("--muted"),
  };
}

function textOf(node, now) {
  const first = node.spans[0]?.[0];
  const last = node.spans[node.spans.length - 1];
  const ended = node.state === "ended";
  const words = [node.name, node.state, node.reason, node.message].filter(Boolean).join(" · ");
  if (!first) return words;
  return `${words} · from ${clock(first)}, ${duration((ended ? last[0] : now) - first)}`;
}

export function Timeline({ nodes, until }) {
  const place = useRef(null);
  const canvas = useRef(null);
  const [tip, setTip] = useState("");
  const known = nodes.filter((node) => node.spans.length);
  const row = Math.max(Math.min(ROW, MOST_HEIGHT / Math.max(known.length, 1)), 0.3);
  const height = Math.ceil(known.length * row) + AXIS;
  const start = Math.min(...known.map((node) => node.spans[0][0]));
  const end = Math.max(until, start + 1);

  useEffect(() => {
    const frame = place.current;
    // Without a node there is no canvas.
    if (!frame || !canvas.current) return undefined;
    const draw = () => canvas.current && drawRows(canvas.current, frame.clientWidth, height, row, known, start, end);
    draw();
    const size = new ResizeObserver(draw);
    size.observe(frame);
    const theme = new MutationObserver(draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      size.disconnect();
      theme.disconnect();
    };
  });

  if (!known.length) return html`<p class="empty">No node has been recorded.</p>`;
  const point = (event) => {
    const index = Math.floor(event.offsetY / row);
    setTip(known[index] ? textOf(known[index], end) : "");
  };
  return html`<div class="timeline" ref=${place}>
    <canvas
      ref=${canvas}
      role="img"
      aria-label=${`Timeline of ${known.length} nodes; the table of nodes has the same data`}
      onMouseMove=${point}
      onMouseLeave=${() => setTip("")}
    ></canvas>
    <p class="tip" aria-hidden="true">${tip || html`<${Legend} />`}</p>
  </div>`;
}

function Legend() {
  return html`<span class="legend">
    <i class="swatch swatch-pending"></i>requested <i class="swatch swatch-starting"></i>starting
    <i class="swatch swatch-working"></i>working <i class="swatch swatch-draining"></i>draining
    <i class="swatch swatch-unresponsive"></i>unresponsive <b class="cross">✕</b>killed or failed
  </span>`;
}

function drawRows(canvas, width, height, row, nodes, start, end) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  const paint = colours();
  const labels = row >= 11 ? LABELS : 4;
  const room = width - labels - 8;
  const x = (moment) => labels + (room * (moment - start)) / (end - start);
  ctx.font = "11px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  drawAxis(ctx, { start, end, x, height, labels, room, paint });
  nodes.forEach((node, index) => {
    const top = index * row;
    const thick = row >= 6 ? row - 4 : row;
    const y = top + (row - thick) / 2;
    if (row >= 11) {
      ctx.fillStyle = paint.text;
      ctx.fillText(node.name, 0, top + row / 2, labels - 8);
    }
    node.spans.forEach(([from, state], i) => {
      if (state === "ended") return;
      const to = node.spans[i + 1]?.[0] ?? (node.state === "ended" ? from : end);
      ctx.fillStyle = paint[state] || paint.line;
      ctx.fillRect(x(from), y, Math.max(x(to) - x(from), 1), thick);
    });
    const last = node.spans[node.spans.length - 1];
    if (last[1] === "ended" && row >= 6) {
      const failed = FAILED.includes(node.reason);
      ctx.fillStyle = failed ? paint.bad : paint.ok;
      ctx.font = failed ? "bold 12px system-ui, sans-serif" : "10px system-ui, sans-serif";
      ctx.fillText(failed ? "✕" : "|", Math.min(x(last[0]) + 2, width - 9), top + row / 2 + 0.5);
      ctx.font = "11px system-ui, sans-serif";
    }
  });
}

function drawAxis(ctx, { start, end, x, height, labels, room, paint }) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800];
  const every = steps.find((step) => (room * step) / (end - start) > 90) || 2592000;
  ctx.strokeStyle = paint.line;
  ctx.fillStyle = paint.text;
  for (let at = 0; at <= end - start; at += every) {
    const place = x(start + at);
    ctx.beginPath();
    ctx.moveTo(place + 0.5, 0);
    ctx.lineTo(place + 0.5, height - AXIS + 4);
    ctx.stroke();
    const text = at === 0 ? clock(start) : `+${at < 120 ? `${at} s` : at < 7200 ? `${at / 60} min` : at < 172800 ? `${at / 3600} h` : `${at / 86400} d`}`;
    if (place + 50 < labels + room + 8) ctx.fillText(text, place, height - 7);
  }
}
