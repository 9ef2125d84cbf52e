// The frame: session, navigation, theme. The address after # says which page is shown.

import { html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { ClusterPage } from "./cluster.js";
import { JobPage } from "./job.js";
import { JobsPage } from "./jobs.js";
import { beginSession, takeToken } from "./live.js";

function pageOf(hash) {
  const [, kind, namespace, name, tab] = hash.split("?")[0].split("/");
  if (kind === "job" && name) {
    return { kind, namespace: namespace === "-" ? "" : decodeURIComponent(namespace), name: decodeURIComponent(name), tab };
  }
  return { kind: kind === "cluster" ? "cluster" : "jobs" };
}

const THEMES = { auto: "dark", dark: "light", light: "auto" };

function setTheme(theme) {
  if (theme === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = theme;
}

function storedTheme() {
  try {
    const theme = localStorage.getItem("elasticdl-theme");
    return theme in THEMES ? theme : "auto";
  } catch {
    return "auto";
  }
}

function ThemeButton() {
  const [theme, choose] = useState(storedTheme);
  const next = () => {
    const chosen = THEMES[theme];
    choose(chosen);
    setTheme(chosen);
    try {
      localStorage.setItem("elasticdl-theme", chosen);
    } catch {
      // Without a store, the choice lasts as long as the page.
    }
  };
  return html`<button class="quiet" type="button" onClick=${next} title="Colours: as the system, dark, light">
    ${{ auto: "◐ auto", dark: "● dark", light: "○ light" }[theme]}
  </button>`;
}

const WORDS = { live: "live", connecting: "connecting", offline: "offline, retrying" };

function App() {
  const [page, go] = useState(() => pageOf(location.hash));
  const [state, setState] = useState("connecting");
  const [help, setHelp] = useState(false);
  useEffect(() => {
    const changed = async () => {
      const token = takeToken();
      if (token && (await beginSession(token))) setState("connecting");
      go(pageOf(location.hash));
      window.scrollTo(0, 0);
    };
    const pressed = (event) => {
      if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "?") setHelp((shown) => !shown);
      if (event.key === "Escape") setHelp(false);
      if (event.key === "u" && page.kind !== "jobs") location.hash = "#/jobs";
      if (event.key === "c" && page.kind !== "cluster") location.hash = "#/cluster";
    };
    addEventListener("hashchange", changed);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("hashchange", changed);
      removeEventListener("keydown", pressed);
    };
  }, [page.kind]);
  document.title = `${{ job: page.name, cluster: "Cluster", jobs: "Jobs" }[page.kind]} · ElasticDL`;
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById("main").focus(); }}>Skip to content</a>
    <header class="top">
      <a class="brand" href="#/jobs"><img src="/icon.svg" alt="" width="22" height="22" />ElasticDL</a>
      <nav aria-label="Pages">
        <a href="#/jobs" aria-current=${page.kind === "jobs" ? "page" : undefined}>Jobs</a>
        <a href="#/cluster" aria-current=${page.kind === "cluster" ? "page" : undefined}>Cluster</a>
      </nav>
      <span class="space"></span>
      <span class=${`live live-${state}`} role="status">${WORDS[state] || "offline, retrying"}</span>
      <button class="quiet wide-only" type="button" onClick=${() => setHelp(!help)} aria-expanded=${help}>? keys</button>
      <${ThemeButton} />
    </header>
    ${help ? html`<${Keys} />` : null}
    <main id="main" tabindex="-1">
      ${state === "unauthorized"
        ? html`<${SignIn} onDone=${() => setState("connecting")} />`
        : page.kind === "job"
          ? html`<${JobPage} key=${`${page.namespace}/${page.name}`} ...${page} onState=${setState} />`
          : page.kind === "cluster"
            ? html`<${ClusterPage} onState=${setState} />`
            : html`<${JobsPage} onState=${setState} />`}
    </main>
  `;
}

function Keys() {
  const keys = [
    ["/", "search"],
    ["j k", "next and previous job"],
    ["Enter", "open the job"],
    ["← →", "tabs of a job"],
    ["u", "all jobs"],
    ["c", "the cluster"],
    ["?", "this list"],
  ];
  return html`<dl class="keys">${keys.map(([key, words]) => html`<dt><kbd>${key}</kbd></dt><dd>${words}</dd>`)}</dl>`;
}

function SignIn({ onDone }) {
  const [wrong, setWrong] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const text = new FormData(event.target).get("token").trim();
    const token = text.includes("token=") ? text.split("token=")[1] : text;
    if (await beginSession(token)) onDone();
    else setWrong(true);
  };
  return html`<section class="sign-in">
    <h1>Open the link with the token</h1>
    <p>Run <code>elasticdl dashboard --show_link</code> on the machine of the dashboard, and open the link that it prints. Or paste the link here.</p>
    <p class="note">A dashboard on a cluster takes your own token: <code>kubectl create token ACCOUNT</code>.</p>
    <form onSubmit=${submit}>
      <label>Link or token <input name="token" type="password" autocomplete="off" required /></label>
      <button class="primary" type="submit">Open</button>
    </form>
    ${wrong ? html`<p class="notice notice-bad" role="alert">This token is not accepted.</p>` : null}
  </section>`;
}

setTheme(storedTheme());
const token = takeToken();
if (token) await beginSession(token);
if (!location.hash) history.replaceState(null, "", "#/jobs");
const place = document.getElementById("app");
place.textContent = "";
render(html`<${App} />`, place);
