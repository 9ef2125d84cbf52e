// Figures and times as texts. Everything that is not known is an en dash.

const NONE = "–";

export function count(value) {
  return value == null ? NONE : Math.round(value).toLocaleString("en-US");
}

// 12.3k, 4.56M: for places without room.
export function short(value) {
  if (value == null || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= limit) return `${significant(value / (unit === "k" ? 1e3 : limit))}${unit}`;
  }
  return size >= 1000 ? Math.round(value).toLocaleString("en-US") : significant(value);
}

// Four significant digits, without an exponent where that is readable.
export function significant(value) {
  if (value == null || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

export function bytes(value) {
  if (value == null) return NONE;
  let size = value;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (size < 1024 || unit === "TiB") return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return NONE;
}

export function percent(part, digits = 0) {
  return part == null ? NONE : `${(100 * part).toFixed(digits)}%`;
}

// Rounded down: 100% means all of it.
export function share(done, total) {
  return total ? Math.floor((100 * done) / total) : null;
}

export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0) return duration(0);
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 120) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function latency(seconds) {
  if (seconds == null) return NONE;
  return seconds < 1 ? `${significant(Number((1000 * seconds).toPrecision(3)))} ms` : `${significant(seconds)} s`;
}

export function ago(moment) {
  if (!moment) return NONE;
  const seconds = Math.max(0, Date.now() / 1000 - moment);
  if (seconds < 60) return "just now";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return NONE;
}

export function clock(moment) {
  if (!moment) return "";
  return new Date(moment * 1000).toLocaleTimeString("en-GB");
}

export function dateTime(moment) {
  if (!moment) return NONE;
  const date = new Date(moment * 1000);
  const day = date.toLocaleDateString("en-CA");
  return `${day} ${date.toLocaleTimeString("en-GB")}`;
}
