// The session, and documents that the server keeps up to date.

import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

const HEADER = { "X-ElasticDL-Dashboard": "1" };

// Exchanges a token for the session's cookie. Returns whether it was right.
export async function beginSession(token) {
  try {
    const reply = await fetch("/api/session", { method: "POST", headers: { ...HEADER, Authorization: `Bearer ${token}` } });
    return reply.ok;
  } catch {
    return false;
  }
}

// The token in the fragment of a link: taken, and removed from the address bar and the browser's history.
export function takeToken() {
  const [page, query] = location.hash.split("?");
  const token = new URLSearchParams(query || "").get("token");
  if (token) history.replaceState(null, "", page || "#/jobs");
  return token;
}

export async function act(path, action, body) {
  const url = new URL(path, location.href);
  url.pathname += `/actions/${action}`;
  const reply = await fetch(url, {
    method: "POST",
    headers: { ...HEADER, "Content-Type": "application/json" },
    body: JSON.stringify(body || {}),
  });
  const answer = await reply.json();
  if (!reply.ok) throw new Error([answer.error, answer.hint].filter(Boolean).join(" "));
  return answer.message;
}

// Follows a stream of the server. The browser comes back by itself, with the last event it has seen; where it gives
// up (the server answered with an error), this tries again.
export function openStream(url, handlers, onState) {
  let source = null;
  let timer = 0;
  let closed = false;

  async function why() {
    try {
      const reply = await fetch(url.replace("/stream", url.startsWith("/api/stream") ? "/jobs" : ""));
      if (reply.status === 401) return "unauthorized";
      // What the server says: there is no such job, no cluster, or this user may not see it.
      if ([403, 404, 503].includes(reply.status)) return (await reply.json()).error;
    } catch {
      return "offline";
    }
    return "offline";
  }

  function open() {
    source = new EventSource(url);
    source.onopen = () => onState("live");
    source.onerror = async () => {
      onState("offline");
      if (source.readyState !== EventSource.CLOSED || closed) return;
      const reason = await why();
      if (closed) return;
      onState(reason);
      // From the beginning: a new source does not know what was seen.
      handlers.restart?.();
      if (reason !== "unauthorized") timer = setTimeout(open, 2000);
    };
    for (const [kind, handle] of Object.entries(handlers)) {
      if (kind === "restart") continue;
      source.addEventListener(kind, (event) => handle(JSON.parse(event.data), source));
    }
  }

  open();
  return () => {
    closed = true;
    clearTimeout(timer);
    source.close();
  };
}

// A document as an object by section: [document, state]. The document is null until it has come.
export function useDocument(url) {
  const [state, setState] = useState("connecting");
  const [, redraw] = useState(0);
  const held = useRef(null);
  useEffect(() => {
    held.current = null;
    setState("connecting");
    let frame = 0;
    const draw = () => {
      frame = 0;
      redraw((n) => n + 1);
    };
    const changed = () => {
      if (!frame) frame = requestAnimationFrame(draw);
    };
    const close = openStream(
      url,
      {
        whole: (sections) => {
          held.current = sections;
          changed();
        },
        change: (sections) => {
          const next = { ...held.current };
          for (const [key, value] of Object.entries(sections)) {
            if (value === null && key !== "goodput" && key !== "audit") delete next[key];
            else next[key] = value;
          }
          held.current = next;
          changed();
        },
      },
      setState,
    );
    return () => {
      close();
      cancelAnimationFrame(frame);
    };
  }, [url]);
  return [held.current, state];
}

// Renders again now and then, for texts such as "3 min ago".
export function useClock(milliseconds = 5000) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), milliseconds);
    return () => clearInterval(timer);
  }, [milliseconds]);
}

// Whether a state is one of the connection. Any other is the reason why there is no document.
export function isConnectionState(state) {
  return ["live", "connecting", "offline", "unauthorized"].includes(state);
}
