// A token shows its values when it has the focus (page.css): by click or tap, or by arrow keys in its completion.
const focus = (token) => {
  if (!token) return;
  token.tabIndex = -1;
  token.focus();
};

document.addEventListener("click", (event) => focus(event.target.closest("div.tokens span")));
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const inside = step && event.target.closest("div.tokens");
  if (!inside) return;
  event.preventDefault();
  const tokens = [...inside.querySelectorAll("span")];
  focus(tokens[event.target === inside ? 0 : tokens.indexOf(event.target) + step]);
});
