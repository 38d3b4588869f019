import { isAbsolute, relative } from "node:path";

/** Whether `path` is `directory` or below it, as both are spelled: links are not followed. */
export function isInside(directory: string, path: string): boolean {
  const below = relative(directory, path);
  return below !== ".." && !below.startsWith("../") && !isAbsolute(below);
}
