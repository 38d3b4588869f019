/** Lists what an install of a package lacks on this host, for `svc install --dry-run`. */
import { readFile } from "node:fs/promises";
import type { PackageReport } from "../../authoring/check.ts";
import { boundPorts } from "../../sys/listening-sockets.mjs";
import { calls } from "../client/calls.ts";
import type { CommandContext } from "../context.ts";

type Manifest = NonNullable<PackageReport["manifest"]>;

const containerRuntimes: readonly string[] = ["docker", "compose"];

/** @param pairs the settings of the command line: `key=value` */
export async function noteNeeds(
  context: CommandContext,
  manifest: Manifest,
  pairs: readonly string[],
): Promise<void> {
  const chosen = new Map(pairs.map((pair) => [pair.split("=", 1).join(""), pair.replace(/^[^=]*=?/, "")]));
  noteSettings(context, manifest, chosen);
  // For other users, the check itself says that only root can install the package.
  if (manifest.permissions.length > 0 && context.host.uid === 0)
    context.note(`It asks for these permissions on the host: ${manifest.permissions.join(", ")}.`);
  await noteEngine(context, manifest);
  await notePorts(context, manifest, chosen);
}

function noteSettings(
  context: CommandContext,
  { settings }: Manifest,
  chosen: ReadonlyMap<string, string>,
): void {
  const missing = (settings?.required ?? []).filter(
    (key) => settings?.properties[key]?.default === undefined && !chosen.has(key),
  );
  if (missing.length > 0)
    context.note(`Required settings: ${missing.map((key) => `--set ${key}=VALUE`).join(" ")}`);
}

async function noteEngine(context: CommandContext, { runtime }: Manifest): Promise<void> {
  if (!containerRuntimes.includes(runtime.kind)) return;
  const status = await context.call(calls.getStatus, {}).catch(withoutDaemon);
  const engine = status?.engine;
  if (engine === undefined || engine.state === "AVAILABLE") return;
  context.note(
    `It needs a container engine, and none is usable at ${engine.socket}; see why with: svc doctor`,
  );
}

async function notePorts(
  context: CommandContext,
  { ports, settings }: Manifest,
  chosen: ReadonlyMap<string, string>,
): Promise<void> {
  const report = await context.call(calls.getPortReport, {}).catch(withoutDaemon);
  for (const { name, protocol, default: fixed, setting = "" } of ports) {
    const number = Number(fixed ?? chosen.get(setting) ?? settings?.properties[setting]?.default);
    const holder = report?.apps.find((app) =>
      app.ports.some((each) => each.port === number && each.protocol === protocol),
    );
    const isBound = (await boundHere(protocol)).has(number);
    if (holder === undefined && !isBound) continue;
    const by = holder === undefined ? "another process" : `app "${holder.id}"`;
    const result =
      setting !== "" && !chosen.has(setting)
        ? "an install chooses the next free one"
        : "the app could not start";
    context.note(`Port ${number} ("${name}") is in use by ${by}: ${result}.`);
  }
}

/** A package is checked without a daemon, too. */
function withoutDaemon(): undefined {
  return undefined;
}

async function boundHere(protocol: "tcp" | "udp"): Promise<ReadonlySet<number>> {
  const tables = await Promise.all(
    ["", "6"].map((version) => readFile(`/proc/net/${protocol}${version}`, "latin1").catch(() => "")),
  );
  return new Set(tables.flatMap((table) => [...boundPorts(table, protocol)]));
}
