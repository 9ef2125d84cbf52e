// Line charts by uPlot, in the colours of the page.

import { html, useEffect, useRef } from "./vendor/htm-preact.js";
import { short } from "./format.js";

const uPlot = window.uPlot;
// Of the page's custom properties: blue, orange, green, purple, grey; told apart with most kinds of colour blindness.
const COLOURS = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5"];
const DASHES = [undefined, [6, 3], [2, 2], [8, 2, 2, 2], [1, 3]];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// `series`: [{label, stepped, muted}], `data`: columns, the first is x. `markers`: [{x, text}] as vertical lines.
// `time`: x is a moment. `log`: a logarithmic scale.
export function Chart({ series, data, markers = [], time = false, height = 200, label, fromZero = false }) {
  const place = useRef(null);
  const plot = useRef(null);
  const marks = useRef(markers);
  marks.current = markers;
  const key = JSON.stringify([series, time, height, fromZero]);

  useEffect(() => {
    const node = place.current;
    const build = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(series, { time, height, fromZero, width: node.clientWidth, marks }), data, node);
    };
    build();
    const size = new ResizeObserver(() => plot.current.setSize({ width: node.clientWidth, height }));
    size.observe(node);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", build);
    const theme = new MutationObserver(build);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      size.disconnect();
      theme.disconnect();
      dark.removeEventListener("change", build);
      plot.current.destroy();
      plot.current = null;
    };
  }, [key]);

  useEffect(() => {
    plot.current?.setData(data);
  });

  return html`<div class="chart" ref=${place} role="img" aria-label=${label}></div>`;
}

function options(series, { time, height, fromZero, width, marks }) {
  const axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1, size: 4 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: Math.max(width, 50),
    height,
    cursor: { points: { size: 6 }, drag: { x: true, y: false } },
    legend: { live: true },
    scales: {
      x: { time },
      y: { range: (_, low, high) => yRange(low, high, fromZero) },
    },
    axes: [
      { ...axis, size: 28, space: 80, values: time ? (_, ticks) => clockTicks(ticks) : (_, ticks) => ticks.map(short) },
      { ...axis, size: 52, values: (_, ticks) => ticks.map(short) },
    ],
    series: [
      { label: time ? "time" : "step", value: time ? "{HH}:{mm}:{ss}" : (_, value) => (value == null ? "–" : value.toLocaleString("en-US")) },
      ...series.map((one, i) => ({
        label: one.label,
        stroke: colour(one.muted ? "--muted" : COLOURS[i % COLOURS.length]),
        width: one.muted ? 1 : 2,
        dash: one.muted ? [4, 4] : DASHES[i % DASHES.length],
        fill: one.filled ? `${colour(COLOURS[i % COLOURS.length])}22` : undefined,
        paths: one.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        points: { show: one.points ?? undefined, size: 5 },
        spanGaps: true,
        value: (_, value) => short(value),
      })),
    ],
    plugins: [{ hooks: { drawClear: (plot) => drawMarks(plot, marks.current) } }],
  };
}

// Hours and minutes; seconds where ticks are closer than a minute, the day where they are days apart.
function clockTicks(ticks) {
  const every = ticks.length > 1 ? ticks[1] - ticks[0] : 60;
  return ticks.map((tick) => {
    const date = new Date(1000 * tick);
    if (every >= 86400) return date.toLocaleDateString("en-CA").slice(5);
    return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: every < 60 ? "2-digit" : undefined });
  });
}

function yRange(low, high, fromZero) {
  if (low == null) return [0, 1];
  const bottom = fromZero ? Math.min(low, 0) : low;
  const room = (high - bottom || Math.abs(high) || 1) * 0.06;
  return [fromZero && low >= 0 ? 0 : bottom - room, high + room];
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour("--series-2");
  ctx.fillStyle = colour("--muted");
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.lineWidth = devicePixelRatio;
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  let free = -Infinity;
  for (const mark of marks) {
    const x = plot.valToPos(mark.x, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const room = ctx.measureText(mark.text).width;
    if (x > free && x + room < bbox.left + bbox.width) {
      ctx.fillText(mark.text, x + 3 * devicePixelRatio, bbox.top + 11 * devicePixelRatio);
      free = x + room + 12 * devicePixelRatio;
    }
  }
  ctx.restore();
}
