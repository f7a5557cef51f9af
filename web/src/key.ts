// The API key of a server that asks for one.

const keyName = "vitrine.key";
let key = readKey();

/** The key is kept for this tab alone; where the browser keeps nothing, until the page is left. */
function readKey(): string {
  try {
    return sessionStorage.getItem(keyName) ?? "";
  } catch {
    return "";
  }
}

export function setKey(value: string): void {
  key = value.trim();
  try {
    sessionStorage.setItem(keyName, key);
  } catch {
    // It holds until the page is left.
  }
}

export function hasKey(): boolean {
  return key !== "";
}

/** The headers of a request. */
export function keyHeaders(): Record<string, string> {
  return key === "" ? {} : { Authorization: `Bearer ${key}` };
}
