/** The shown view, taken from the URL fragment, which the daemon never receives. */
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

/**
 * The paths after a view's name. A word in upper case stands for any segment, `*` for any number of segments.
 */
const paths: Readonly<Record<ViewName, readonly string[]>> = {
  overview: [""],
  apps: ["", "APP"],
  install: [""],
  backups: ["", "APP", "APP/STORAGE/NAME/*"],
  schedules: ["", "new", "OWNER/ID", "OWNER/ID/edit"],
  files: ["*"],
  inventory: [
    ...["", "containers", "containers/ID", "images", "volumes", "networks"],
    ...["ports", "processes", "disk"],
  ],
  host: [""],
  sources: [""],
  access: [""],
};

/** `notFound`: no view has the address. */
export type ShownView = ViewName | "notFound";

/** The entry of the navigation that a view belongs to. */
export function entryOf(view: ShownView): ShownView {
  return view === "install" ? "apps" : view;
}

export interface Route {
  readonly view: ShownView;
  /** Path segments after the view's name, such as the ID of an app. */
  readonly args: readonly string[];
  /** As in the address. */
  readonly fragment: string;
}

export const route = signal<Route>({ view: "overview", args: [], fragment: "" });

export function pathTo(view: ViewName, ...args: readonly string[]): string {
  return `#/${[view, ...args].map(encodeURIComponent).join("/")}`;
}

/** The sign-in code in a fragment; undefined if the fragment names a view. */
export function codeIn(fragment: string): string | undefined {
  return /^#code=(svco_[\w-]+)$/.exec(fragment)?.[1];
}

/** Updates the route whenever the address changes. */
export function startRouting(): void {
  const read = (): void => {
    if (codeIn(location.hash) === undefined) route.value = routeAt(location.hash);
  };
  addEventListener("hashchange", read);
  read();
}

function routeAt(fragment: string): Route {
  const isStart = ["", "#", "#/"].includes(fragment);
  const [, first, ...rest] = fragment.split("/");
  const view = isStart ? "overview" : viewNames.find((name) => name === first);
  const notFound: Route = { view: "notFound", args: [], fragment };
  if (view === undefined) return notFound;
  try {
    const args = rest.filter((arg) => arg !== "").map(decodeURIComponent);
    return paths[view].some((path) => matches(path, args)) ? { view, args, fragment } : notFound;
  } catch {
    return notFound;
  }
}

function matches(path: string, args: readonly string[]): boolean {
  const words = path.split("/").filter((word) => word !== "" && word !== "*");
  const hasLength = path.endsWith("*") ? args.length >= words.length : args.length === words.length;
  return hasLength && words.every((word, at) => word === word.toUpperCase() || word === args[at]);
}
