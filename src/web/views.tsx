/** Every view of the page, by the name that it has in the address. */
import type { JSX } from "preact";
import { lazily } from "./parts/lazily.tsx";
import type { ViewName } from "./route.ts";
import { texts } from "./texts.ts";
import type { ViewProps } from "./view-props.ts";
import { AppView } from "./views/app.tsx";
import { AppsView } from "./views/apps.tsx";
import { InstallView } from "./views/install.tsx";
import { OverviewView } from "./views/overview.tsx";

interface View {
  readonly title: string;
  /** The entry of the navigation that it belongs to. */
  readonly entry: ViewName;
  readonly show: (props: ViewProps) => JSX.Element;
}

/** In the order of the navigation. What is not looked at first comes by `lazily`. */
export const views: Readonly<Record<ViewName, View>> = {
  overview: { title: texts.overview.title, entry: "overview", show: OverviewView },
  apps: {
    title: texts.apps.title,
    entry: "apps",
    show: ({ api, node, args: [id] }) =>
      id === undefined ? <AppsView node={node} /> : <AppView key={id} api={api} node={node} id={id} />,
  },
  install: { title: texts.install.title, entry: "apps", show: InstallView },
  backups: {
    title: texts.backups.title,
    entry: "backups",
    show: lazily(() => import("./views/backups/backups.tsx"), "BackupsView"),
  },
  schedules: {
    title: texts.schedules.title,
    entry: "schedules",
    show: lazily(() => import("./views/schedules/schedules.tsx"), "SchedulesView"),
  },
  files: {
    title: texts.files.title,
    entry: "files",
    show: lazily(() => import("./views/files/files.tsx"), "FilesView"),
  },
  inventory: {
    title: texts.inventory.title,
    entry: "inventory",
    show: lazily(() => import("./views/inventory/inventory.tsx"), "InventoryView"),
  },
  host: {
    title: texts.host.title,
    entry: "host",
    show: lazily(() => import("./views/host/host.tsx"), "HostView"),
  },
  sources: {
    title: texts.sources.title,
    entry: "sources",
    show: lazily(() => import("./views/sources/sources.tsx"), "SourcesView"),
  },
  access: {
    title: texts.access.title,
    entry: "access",
    show: lazily(() => import("./views/access/access.tsx"), "AccessView"),
  },
};
