// Asked for when the server wants an API key.

import { setKey } from "../key";
import { connect } from "./actions";

export function KeyForm({ problem }: { problem: string }) {
  return (
    <form
      class="trouble"
      aria-labelledby="key-title"
      onSubmit={(event) => {
        event.preventDefault();
        setKey(String(new FormData(event.currentTarget).get("key") ?? ""));
        void connect();
      }}
    >
      <p id="key-title" role="alert">{problem}</p>
      <label>
        <span>API key</span>
        <input type="password" name="key" autocomplete="off" required />
      </label>
      <button type="submit">Use this key</button>
      <p class="remark">It is kept until this tab is closed, and sent to this server alone.</p>
    </form>
  );
}
