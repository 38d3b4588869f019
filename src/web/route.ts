/** Which view is shown: it stands in the fragment, which the daemon never sees. */
import { signal } from "@preact/signals";

/** The first word of the fragment, in the order of the navigation. */
export const viewNames = [
  "overview",
  "apps",
  "install",
  "backups",
  "schedules",
  "files",
  "inventory",
  "host",
  "sources",
  "access",
] as const;

export type ViewName = (typeof viewNames)[number];

/** The entry of the navigation that a view belongs to. */
export function entryOf(view: ViewName): ViewName {
  return view === "install" ? "apps" : view;
}

export interface Route {
  readonly view: ViewName;
  /** What stands behind the view's name, such as the id of an app. */
  readonly args: readonly string[];
}

export const route = signal<Route>({ view: "overview", args: [] });

export function pathTo(view: ViewName, ...args: readonly string[]): string {
  return `#/${[view, ...args].map(encodeURIComponent).join("/")}`;
}

/** What one signs in with, which comes in the place of a view: undefined for a view. */
export function codeIn(fragment: string): string | undefined {
  return /^#code=(svco_[\w-]+)$/.exec(fragment)?.[1];
}

/** Follows the address from now on. */
export function startRouting(): void {
  const read = (): void => {
    if (codeIn(location.hash) === undefined) route.value = routeAt(location.hash);
  };
  addEventListener("hashchange", read);
  read();
}

function routeAt(fragment: string): Route {
  const [, first, ...rest] = fragment.split("/");
  const view = viewNames.find((name) => name === first) ?? "overview";
  try {
    return { view, args: rest.filter((arg) => arg !== "").map(decodeURIComponent) };
  } catch {
    return { view, args: [] };
  }
}
