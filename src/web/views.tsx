/** Every view of the page, by its name in the address. */
import type { JSX } from "preact";
import { lazily } from "./parts/lazily.tsx";
import { type ShownView, pathTo } from "./route.ts";
import type { ViewProps } from "./view-props.ts";
import { AppView } from "./views/app.tsx";
import { AppsView } from "./views/apps.tsx";
import { InstallView } from "./views/install.tsx";
import { OverviewView } from "./views/overview.tsx";
import { Heading } from "./parts/heading.tsx";
import { texts } from "./texts.ts";

/** Views that are rarely opened first are loaded with `lazily`. */
export const views: Readonly<Record<ShownView, (props: ViewProps) => JSX.Element>> = {
  overview: OverviewView,
  apps: ({ api, node, args: [id] }) =>
    id === undefined ? <AppsView node={node} /> : <AppView key={id} api={api} node={node} id={id} />,
  install: InstallView,
  backups: lazily(() => import("./views/backups/backups.tsx"), "BackupsView"),
  schedules: lazily(() => import("./views/schedules/schedules.tsx"), "SchedulesView"),
  files: lazily(() => import("./views/files/files.tsx"), "FilesView"),
  inventory: lazily(() => import("./views/inventory/inventory.tsx"), "InventoryView"),
  host: lazily(() => import("./views/host/host.tsx"), "HostView"),
  sources: lazily(() => import("./views/sources/sources.tsx"), "SourcesView"),
  access: lazily(() => import("./views/access/access.tsx"), "AccessView"),
  notFound: NotFoundView,
};

/** The view for unknown addresses. */
function NotFoundView() {
  return (
    <>
      <Heading title={texts.notFound.title} />
      <p>{texts.notFound.explain}</p>
      <p>
        <a href={pathTo("overview")}>{texts.notFound.toOverview}</a>
      </p>
    </>
  );
}
