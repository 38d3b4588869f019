/** Which view is shown: it stands in the fragment, which the daemon never sees. */
import { signal } from "@preact/signals";

export type Route =
  { readonly view: "overview" | "apps" | "install" } | { readonly view: "app"; readonly id: string };

export const route = signal<Route>({ view: "overview" });

export function pathTo(to: Route): string {
  if (to.view === "app") return `#/apps/${encodeURIComponent(to.id)}`;
  if (to.view === "install") return "#/install";
  return to.view === "apps" ? "#/apps" : "#/";
}

/** Follows the address from now on. */
export function startRouting(): void {
  const read = (): void => void (route.value = routeAt(location.hash));
  addEventListener("hashchange", read);
  read();
}

function routeAt(fragment: string): Route {
  const [, first, id] = fragment.split("/");
  if (first === "install") return { view: "install" };
  if (first !== "apps") return { view: "overview" };
  try {
    return id === undefined ? { view: "apps" } : { view: "app", id: decodeURIComponent(id) };
  } catch {
    return { view: "apps" };
  }
}
