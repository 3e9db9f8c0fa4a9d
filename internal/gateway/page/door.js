// The way in and out where the server has tokens.

import { Failure, post } from "./api.js";
import { byId, setText } from "./dom.js";

// guard wires the form and the button; entered and left are called when it happened.
export function guard({ entered, left }) {
  const token = byId("token");
  byId("login").addEventListener("submit", async (e) => {
    e.preventDefault();
    setText(byId("login-error"), "");
    try {
      await post("/api/v1/login", { token: token.value.trim() });
    } catch (err) {
      const unknown = err instanceof Failure && err.status === 401;
      setText(byId("login-error"), unknown ? "This token is not known. Ask for a new one if it was revoked." : `That did not work: ${err.message}. Try again.`);
      token.setAttribute("aria-invalid", String(unknown));
      token.select();
      return;
    }
    token.value = "";
    token.removeAttribute("aria-invalid");
    entered();
  });
  byId("logout").addEventListener("click", async () => {
    try {
      await post("/api/v1/logout", {});
    } catch {
      // Without an answer the cookie stays. The page closes all the same; it says so.
      setText(byId("login-error"), "The server did not answer, so this browser still holds the token. Log in and out again.");
    }
    left();
  });
}
