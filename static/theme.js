/* Before the first paint, so that a page never flashes in the other theme, nor with what only a script can do. */
(() => {
  document.documentElement.classList.add("has-script");
  const wanted = localStorage.getItem("egs-theme");
  if (wanted === "light" || wanted === "dark") document.documentElement.dataset.bsTheme = wanted;
})();
