import { join } from "node:path";

/** The base directory of `variable`, else `fallback` below the home; a relative value counts as unset (XDG Base Directory Specification). */
export function xdgDir(
  { env, home }: { readonly env: Readonly<Record<string, string | undefined>>; readonly home: string },
  variable: string,
  fallback: string,
): string {
  const value = env[variable];
  return value?.startsWith("/") === true ? value : join(home, fallback);
}
