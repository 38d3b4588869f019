/** The address of an app for a browser, as its daemon knows it. */
import { calls, type App } from "./client/calls.ts";
import type { CommandContext } from "./context.ts";
import { chooseNode } from "./nodes/choose-node.ts";
import { portsText } from "./output/app-table.ts";
import { webPortOf } from "../lib/web-port.ts";
import { urlAt } from "./output/web-address.ts";

type Published = Pick<App, "id" | "runtime" | "state" | "ports">;

/** Like {@link urlAt}; asks the daemon at which address a container engine publishes the port. */
export async function urlOf(context: CommandContext, app: Published): Promise<string | undefined> {
  const port = webPortOf(app.ports);
  const isContainer = app.runtime === "docker" || app.runtime === "compose";
  if (!isContainer || port === undefined) return urlAt(await machineOf(context), app);
  const { ports } = await context.call(calls.listAppPorts, { id: app.id });
  const published = ports.find((each) => each.name === port.name && each.port === port.port);
  return urlAt(await machineOf(context), app, published?.addresses);
}

/** ` at http://127.0.0.1:8080` for an app that runs; ` on port 53/udp` without a port for a browser. */
export async function whereText(context: CommandContext, app: Published): Promise<string> {
  if (app.state !== "RUNNING" || app.ports.length === 0) return "";
  const url = await urlOf(context, app);
  if (url === undefined) return ` on port ${portsText(app.ports)}`;
  return app.ports.length === 1 ? ` at ${url}` : ` at ${url}, ports ${portsText(app.ports)}`;
}

/** The daemon's host for addresses of its apps: 127.0.0.1 for this machine, else the name of the node's machine. */
export async function machineOf({ host, options }: CommandContext): Promise<string> {
  const node = chooseNode(host, options);
  if (node === undefined) return "127.0.0.1";
  const { parseAddress } = await import("./nodes/address.ts");
  const address = parseAddress(node.address);
  return address.kind === "unix" ? "127.0.0.1" : address.host;
}
