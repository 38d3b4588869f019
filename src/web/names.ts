/** Names in paths and lists. */

export function lastOf(path: string): string {
  return path.split("/").at(-1) ?? path;
}

/** `a` and `b` of `/a/b`. */
export function partsOf(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

/** `a`, `a/b` of `a/b`. */
export function ancestorsOf(path: string): string[] {
  const parts = partsOf(path);
  return parts.map((_, at) => parts.slice(0, at + 1).join("/"));
}

/** Splits a comma-separated list of names. */
export function namesIn(text: string): string[] {
  return text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}
