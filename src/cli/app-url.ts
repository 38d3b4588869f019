/** The address of an app for a browser, as its daemon knows it. */
import { calls, type App } from "./client/calls.ts";
import type { CommandContext } from "./context.ts";
import { chooseNode } from "./nodes/choose-node.ts";
import { portsText } from "./output/app-table.ts";
import { isInternalInterface } from "../lib/internal-interface.ts";
import { webPortOf } from "../lib/web-port.ts";
import { urlAt } from "./output/web-address.ts";

type Published = Pick<App, "id" | "runtime" | "state" | "ports">;

/** Like {@link urlAt}; asks the daemon for the address at which the app listens. */
export async function urlOf(context: CommandContext, app: Published): Promise<string | undefined> {
  if (app.state !== "RUNNING" || webPortOf(app.ports) === undefined) return undefined;
  const { ports } = await context.call(calls.listAppPorts, { id: app.id });
  return urlAt(await machineOf(context), app, webAddresses(app, ports));
}

/** The addresses of the port for a browser. */
function webAddresses(app: Published, listed: App["ports"]): readonly string[] {
  const port = webPortOf(app.ports);
  return (
    listed.find(({ name, port: number }) => name === port?.name && number === port.port)?.addresses ?? []
  );
}

/** URLs for other machines, if the app listens at all addresses of this host. */
export async function networkUrls(
  context: CommandContext,
  app: Published,
  listed: App["ports"],
): Promise<readonly string[]> {
  const isEverywhere = webAddresses(app, listed).some((address) => address === "0.0.0.0" || address === "::");
  if (!isEverywhere || (await machineOf(context)) !== thisMachine) return [];
  const { networkInterfaces } = await import("node:os");
  return Object.entries(networkInterfaces())
    .filter(([name]) => !isInternalInterface(name))
    .flatMap(([, addresses = []]) => addresses)
    .filter(({ family, internal }) => family === "IPv4" && !internal)
    .flatMap(({ address }) => urlAt(address, app) ?? []);
}

/**
 * ` at http://127.0.0.1:8080` for an app that runs, with the address for other machines if it has one; ` on port 53/udp`
 * without a port for a browser.
 */
export async function whereText(context: CommandContext, app: Published): Promise<string> {
  if (app.state !== "RUNNING" || app.ports.length === 0) return "";
  const url = await urlOf(context, app);
  if (url === undefined) return ` on port ${portsText(app.ports)}`;
  const { ports } = await context.call(calls.listAppPorts, { id: app.id });
  const [network] = await networkUrls(context, app, ports);
  const where = network === undefined ? url : `${url} and ${network}`;
  return app.ports.length === 1 ? ` at ${where}` : ` at ${where}, ports ${portsText(app.ports)}`;
}

/** The ssh tunnel to a port at which only programs on the remote machine itself connect. */
interface Tunnel {
  readonly node: string;
  /** A line of a shell. */
  readonly command: string;
}

/** @returns undefined for daemons that are not behind ssh */
export async function tunnelTo({ host, options }: CommandContext, port: number): Promise<Tunnel | undefined> {
  const node = chooseNode(host, options);
  if (node === undefined) return undefined;
  const { parseAddress, sshTarget } = await import("./nodes/address.ts");
  const address = parseAddress(node.address);
  if (address.kind !== "ssh") return undefined;
  const forward = ["-L", `${port}:127.0.0.1:${port}`];
  return { node: node.name, command: `ssh ${sshTarget(address, forward)}` };
}

/** The address of an app through a tunnel; undefined if the app is reachable without one. */
export async function tunnelToApp(
  context: CommandContext,
  app: Published,
): Promise<(Tunnel & { readonly url: string }) | undefined> {
  const [url, port] = [urlAt(thisMachine, app), webPortOf(app.ports)];
  if (url === undefined || port === undefined) return undefined;
  const tunnel = await tunnelTo(context, port.port);
  if (tunnel === undefined) return undefined;
  const { ports } = await context.call(calls.listAppPorts, { id: app.id });
  const addresses = webAddresses(app, ports);
  const isLoopback = addresses.length > 0 && addresses.every((each) => /^(127\.|::1$)/.test(each));
  return isLoopback ? { ...tunnel, url } : undefined;
}

const thisMachine = "127.0.0.1";

/** The daemon's host for addresses of its apps: 127.0.0.1 for this machine, else the name of the node's machine. */
export async function machineOf({ host, options }: CommandContext): Promise<string> {
  const node = chooseNode(host, options);
  if (node === undefined) return thisMachine;
  const { parseAddress } = await import("./nodes/address.ts");
  const address = parseAddress(node.address);
  return address.kind === "unix" ? thisMachine : address.host;
}
