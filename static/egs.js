/* Small behavior that HTML and htmx do not give. Every page reads and sends without it. */

/* Tells the server the browser's time zone. The next page is in it. */
(() => {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const secure = location.protocol === "https:" ? "; secure" : "";
  if (zone) document.cookie = `egs_zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
})();

/* Theme: the system's until somebody switches. */
(() => {
  const root = document.documentElement;
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    const isDark = root.dataset.bsTheme ? root.dataset.bsTheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.bsTheme = isDark ? "light" : "dark";
    localStorage.setItem("egs-theme", root.dataset.bsTheme);
  });
})();

/* A page that is signed out opens the sign-in page. One that signs out goes to the identity provider, which ends its session, too. */
(() => {
  let isLeaving = false;
  addEventListener("submit", ({ target }) => { isLeaving ||= target.matches("[data-sign-out]"); });
  addEventListener("pageshow", () => { isLeaving = false; });
  document.addEventListener("htmx:beforeOnLoad", (event) => { if (isLeaving) event.preventDefault(); });
  document.addEventListener("egs:signed-out", () => {
    if (!isLeaving) location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  });
})();

/* The server's clock, in the reader's zone, goes on from the moment at which the page was made. */
(() => {
  const clock = document.getElementById("clock");
  if (!clock) return;
  const ahead = Date.parse(clock.dateTime) - Date.now();
  const time = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium", timeZone: document.documentElement.dataset.zone });
  setInterval(() => { clock.textContent = time.format(Date.now() + ahead); }, 1000);
})();

/* Controls: steppers, values to fill in, tabs, copy, dialogs, the list to jump with. */
(() => {
  const changed = (input) => ["input", "change"].forEach((name) => input.dispatchEvent(new Event(name, { bubbles: true })));

  const step = (button) => {
    const input = button.parentElement.querySelector("input");
    const most = input.max ? Number(input.max) : Infinity;
    const now = parseInt(input.value || input.dataset.all, 10) || 0; // empty means all
    input.value = Math.min(most, Math.max(Number(input.min || 1), now + Number(button.dataset.step)));
    changed(input);
  };

  const fill = (button) => {
    const named = `[type=radio][name="${button.dataset.fill.replace("id_", "")}"][value="${CSS.escape(button.value)}"]`;
    const input = document.getElementById(button.dataset.fill) ?? document.querySelector(named);
    if (!input) return;
    if (input.type === "radio") input.checked = true;
    else input.value = button.value;
    button.closest(".quick")?.querySelectorAll("[data-fill]").forEach((other) => {
      other.classList.toggle("is-on", other === button);
      other.setAttribute("aria-pressed", other === button);
    });
    changed(input);
  };

  const select = (tab) => tab.parentElement.querySelectorAll("[role=tab]").forEach((other) => {
    other.setAttribute("aria-selected", other === tab);
    other.tabIndex = other === tab ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = other !== tab;
  });

  const copy = async (button) => {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent.trim());
    document.dispatchEvent(new CustomEvent("egs:toast", { detail: { text: "Copied" } }));
  };

  const open = (button) => {
    button.focus(); // so that the dialog gives the focus back to it, also when a key opened it
    document.getElementById(button.dataset.open)?.showModal();
  };

  const acts = {
    "[data-step]": step,
    "[data-fill]": fill,
    "[role=tab]": select,
    "[data-copy]": copy,
    "[data-open]": open,
    "[data-close]": (button) => button.closest("dialog").close(),
  };
  document.addEventListener("click", (event) => {
    for (const [selector, act] of Object.entries(acts)) {
      const control = event.target.closest(selector);
      if (control) act(control);
    }
  });
  document.addEventListener("change", async (event) => {
    const into = document.getElementById(event.target.dataset?.readsInto);
    if (!into || !event.target.files?.length) return;
    into.value = await event.target.files[0].slice(0, 200_000).text();
    event.target.value = ""; // what is sent is the text, which may be edited yet
    changed(into);
  });
  document.addEventListener("keydown", (event) => {
    const tab = event.target.closest?.("[role=tab]");
    if (!tab || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
    const all = [...tab.parentElement.querySelectorAll("[role=tab]")];
    const next = all.at((all.indexOf(tab) + (event.key === "ArrowRight" ? 1 : -1)) % all.length);
    next.focus();
    select(next);
  });

  const filter = document.querySelector("[data-palette]");
  if (filter) {
    const palette = filter.parentElement;
    const links = () => [...palette.querySelectorAll("li:not([hidden]) a")];
    const find = () => {
      const wanted = filter.value.trim().toLowerCase();
      palette.querySelectorAll("li").forEach((item) => { item.hidden = !item.textContent.toLowerCase().includes(wanted); });
      palette.querySelector(".palette-none").hidden = links().length > 0;
    };
    filter.addEventListener("input", find);
    palette.addEventListener("toggle", () => { filter.value = ""; find(); });
    palette.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.target === filter) links()[0]?.click();
      if (!["ArrowDown", "ArrowUp"].includes(event.key)) return;
      event.preventDefault();
      const all = [filter, ...links()];
      all.at((all.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)) % all.length).focus();
    });
  }

  document.querySelector("[data-focus]")?.focus();
})();

/* The form of a request: the GPUs of a node are those of the GPU that is chosen, and an error stands at its field while one writes. */
(() => {
  document.addEventListener("change", ({ target }) => {
    const field = document.getElementById("id_gpus_per_node");
    if (!field || !target.matches("[data-gpus-per-node]")) return;
    const all = Number(target.dataset.gpusPerNode);
    // A number that meant all of the node before, or more than it has now, means all of it again.
    if (field.value === field.dataset.all || (all && Number(field.value) > all)) field.value = "";
    field.dataset.all = all || "";
    field.placeholder = all ? `all ${all}` : "all";
  });
  document.addEventListener("htmx:afterSettle", () => document.querySelectorAll("#create .field-error").forEach((error) => {
    const field = document.getElementById(error.id.replace(/_error$/, ""));
    if (!field) return;
    const isWrong = error.childElementCount > 0;
    const told = new Set((field.getAttribute("aria-describedby") ?? "").split(" ").filter(Boolean));
    told[isWrong ? "add" : "delete"](error.id);
    field.classList.toggle("is-invalid", isWrong);
    field.toggleAttribute("aria-invalid", isWrong);
    if (isWrong) field.setAttribute("aria-invalid", "true");
    if (told.size) field.setAttribute("aria-describedby", [...told].join(" "));
    else field.removeAttribute("aria-describedby");
  }));
})();

/* A form is sent once, however often its button is hit. */
(() => {
  const release = (form) => {
    delete form.dataset.sent;
    form.querySelectorAll("[aria-busy]").forEach((button) => button.removeAttribute("aria-busy"));
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("[data-once]")) return;
    if (form.dataset.sent) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    form.dataset.sent = "yes";
    (event.submitter ?? form.querySelector("[type=submit]"))?.setAttribute("aria-busy", "true");
  }, { capture: true });
  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.target; // not what a field of it asked for
    if (!form.matches?.("[data-once]")) return;
    release(form);
    if (event.detail.successful) form.closest("dialog")?.close();
  });
  // Back to a page that the browser kept: it may be sent again.
  addEventListener("pageshow", () => document.querySelectorAll("[data-sent]").forEach(release));
})();

/* Questions that come by htmx: a dialog that says data-show opens itself, what was refused comes back into it, and the focus goes back. */
(() => {
  let opener = "";
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { elt, target } = event.detail;
    if (target.id === "ask" && !elt.closest("dialog")) opener = elt.getAttribute("href") ?? "";
    if (target.id !== "inspector" || target.checkVisibility()) return;
    event.preventDefault(); // a small screen has no room for it: there a click opens its page
    if (elt.matches("a")) location.assign(elt.href);
  });
  document.addEventListener("htmx:afterSettle", () => {
    const dialog = document.querySelector("dialog[data-show]:not([open])");
    if (!dialog) return;
    delete dialog.dataset.show;
    dialog.showModal();
    dialog.querySelector("[aria-invalid], [data-focus]")?.focus();
    dialog.addEventListener("close", () => document.querySelector(`a[href="${CSS.escape(opener)}"]`)?.focus());
  });
})();

/* Toasts: only after one's own act, six seconds, longer while hovered or in focus. */
(() => {
  const STAYS_MS = 6000;
  const show = ({ text, undo }, isBad) => {
    const line = document.getElementById("toast-template").content.firstElementChild.cloneNode(true);
    line.classList.toggle("is-bad", isBad);
    line.querySelector("[data-text]").textContent = text;
    const button = line.querySelector("[data-undo]");
    button.hidden = !undo;
    button.addEventListener("click", () => {
      line.remove();
      htmx.ajax("POST", undo, { swap: "none" });
    });
    document.getElementById("toasts").append(line);
    const leave = () => (line.matches(":hover, :focus-within") ? setTimeout(leave, 1000) : line.remove());
    setTimeout(leave, STAYS_MS);
  };
  document.addEventListener("egs:toast", (event) => show(event.detail, false));
  document.addEventListener("egs:refused", (event) => show({ text: `${event.detail.title}. ${event.detail.detail}` }, true));
  // Tells of requests by hand that got no answer; #live tells of fragments that refetch themselves.
  const unanswered = (event) => {
    const { xhr, requestConfig } = event.detail;
    if (requestConfig.verb === "get" || xhr.getResponseHeader?.("HX-Trigger")) return;
    show({ text: xhr.status ? `Not done: the answer was ${xhr.status}.` : "Not done: the server does not answer." }, true);
  };
  document.addEventListener("htmx:responseError", unanswered);
  document.addEventListener("htmx:sendError", unanswered);
})();
