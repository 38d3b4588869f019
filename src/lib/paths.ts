import { basename, dirname, isAbsolute, join, relative } from "node:path";

/** Whether `path` is `directory` or below it, by their text: links are not followed. */
export function isInside(directory: string, path: string): boolean {
  const below = relative(directory, path);
  return below !== ".." && !below.startsWith("../") && !isAbsolute(below);
}

/** Like {@link isInside}, for absolute and normalized paths. Faster, for loops over many paths. */
export function isBelow(directory: string, path: string): boolean {
  return path === directory || path.startsWith(directory.endsWith("/") ? directory : `${directory}/`);
}

/**
 * The base directory in `variable`, or else `fallback` below the home directory. A relative value counts as unset (XDG
 * Base Directory Specification).
 */
export function xdgDir(
  { env, home }: { readonly env: Readonly<Record<string, string | undefined>>; readonly home: string },
  variable: string,
  fallback: string,
): string {
  const value = env[variable];
  return value?.startsWith("/") === true ? value : join(home, fallback);
}

/** Root's own socket of a daemon: next to the public one, in a directory that only root can enter. */
export function rootSocketOf(socketPath: string): string {
  return join(dirname(socketPath), "root", basename(socketPath));
}
