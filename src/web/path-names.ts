/** Names in paths. */

export function lastOf(path: string): string {
  return path.split("/").at(-1) ?? path;
}

/** `a`, `a/b` of `a/b`. */
export function ancestorsOf(path: string): string[] {
  const parts = path.split("/").filter((part) => part !== "");
  return parts.map((_, at) => parts.slice(0, at + 1).join("/"));
}
