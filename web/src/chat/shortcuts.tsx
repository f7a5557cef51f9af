// The list of keys.

const keys: readonly (readonly [string, string])[] = [
  ["Enter", "send the message"],
  ["Shift+Enter", "a new line in it"],
  ["Escape", "stop the answer; close the glass"],
  ["Alt+N", "a new conversation"],
  ["Alt+M", "to the message"],
  ["Alt+R", "answer once more"],
  ["Alt+L", "look inside the last answer"],
  ["Alt+K", "this list"],
  ["← →", "in the glass, on “Token”: the token before, the next one"],
  ["Arrow keys, Enter", "in a grid: move, choose"],
];

export function Shortcuts({ onClose }: { onClose: () => void }) {
  return (
    <>
      <h2 id="help-title">Keys</h2>
      <dl>
        {keys.map(([key, does]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>)}
      </dl>
      <p>Everything is reached with the Tab key too. On a Mac, Alt is the Option key.</p>
      <button type="button" onClick={onClose}>Close</button>
    </>
  );
}
