/* Keys: rows of a table (j k x Enter), whatever says data-key, Ctrl Enter, Esc. Single letters can be switched off. */
(() => {
  const SEQUENCE_MS = 1200;
  const PICKED = "[data-rows] tbody input[type=checkbox]";
  const choice = document.querySelector("[data-letter-keys-switch]");
  let before = "";
  let beforeTimer;

  if (choice) {
    choice.checked = localStorage.getItem("egs-letter-keys") !== "off";
    choice.addEventListener("change", () => localStorage.setItem("egs-letter-keys", choice.checked ? "on" : "off"));
  }

  const rows = () => [...document.querySelectorAll("[data-rows] tbody tr[tabindex]")];
  const here = (all) => Math.max(all.indexOf(document.activeElement.closest("tr")), all.findIndex((row) => row.classList.contains("is-here")));

  const mark = (row, all) => all.forEach((other) => {
    other.classList.toggle("is-here", other === row);
    other.tabIndex = other === row ? 0 : -1;
  });

  const go = (by) => {
    const all = rows();
    const row = all[Math.min(Math.max(here(all) + by, 0), all.length - 1)];
    if (!row) return false;
    mark(row, all);
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
    return true;
  };

  const pick = () => {
    const all = rows();
    const box = all[here(all)]?.querySelector("input[type=checkbox]");
    box?.click();
    return Boolean(box);
  };

  const press = (key) => {
    const target = [...document.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)].find((found) => found.checkVisibility?.() ?? true)
      ?? document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!target) return false;
    if (target.matches("input, select, textarea")) target.focus();
    else target.click();
    return true;
  };

  const letter = (key) => {
    const sequence = before ? `${before} ${key}` : key;
    clearTimeout(beforeTimer);
    before = "";
    if (press(sequence)) return true;
    if (document.querySelector(`[data-key^="${CSS.escape(key)} "]`)) {
      before = key;
      beforeTimer = setTimeout(() => { before = ""; }, SEQUENCE_MS);
      return true;
    }
    return { j: () => go(1), k: () => go(-1), x: pick }[key]?.() ?? false;
  };

  document.addEventListener("keydown", (event) => {
    const { key, target } = event;
    if (key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = target.closest("form") ?? document.querySelector("main form[data-once]");
      form?.requestSubmit();
      return;
    }
    if ((event.ctrlKey || event.metaKey) && key.toLowerCase() === "k") {
      if (press("/")) event.preventDefault();
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || target.closest("input:not([type=checkbox], [type=radio]), select, textarea, dialog[open], [popover]:popover-open")) return;
    if (key === "Enter" && target.matches("[data-rows] tr")) target.querySelector("a")?.click();
    else if (key === "Escape") document.querySelectorAll(`${PICKED}:checked`).forEach((box) => box.click());
    else if (key.length === 1 && choice?.checked !== false && letter(key)) event.preventDefault();
  });

  // The cursor follows the pointer and the tab key, so that j goes on from there.
  document.addEventListener("focusin", (event) => {
    const row = event.target.closest?.("[data-rows] tbody tr[tabindex]");
    if (row) mark(row, rows());
  });
})();
