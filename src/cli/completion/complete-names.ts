/** Completes names that the daemon knows. */
import type { Json } from "../client/rest-shape.ts";
import type { CliHost } from "../host.ts";
import { chooseRoute } from "../client/routing.ts";
import { chooseNode, type NodeOptions } from "../nodes/choose-node.ts";
import { localNode, readNodes } from "../nodes/node-file.ts";
import { calls, type UnaryCall } from "../client/calls.ts";
import type { Client } from "../client/client.ts";
import { SocketClient } from "../client/socket-client.ts";

export interface Candidate {
  readonly word: string;
  readonly description: string;
}

/** Milliseconds for the daemon to respond: a key press must not hang. */
const askTimeoutMs = 500;

/** Calls the daemon that the command would use; undefined if it does not respond in time. */
type Ask = <Request extends object, Response>(
  call: UnaryCall<Request, Response>,
  request: Request,
) => Promise<Response | undefined>;

/** @param args the earlier arguments of the line */
type Source = (ask: Ask, args: readonly string[]) => Promise<readonly Candidate[] | undefined>;

const sources = {
  app: async (ask: Ask) =>
    (await ask(calls.listApps, {}))?.apps.map(({ id, name, state }) => candidate(id, `${name} ${state}`)),
  // Only tags that the daemon already knows: querying the repository takes longer than a key press may.
  tag: async (ask: Ask, ids: readonly string[]) =>
    (await ask(calls.listApps, {}))?.apps
      .filter(({ id, origin }) => origin?.kind === "git" && (ids.length === 0 || ids.includes(id)))
      .flatMap(({ id, origin, available_version: newer = "" }) => [
        ...(newer === "" ? [] : [candidate(newer, `newer, of ${id}`)]),
        ...(origin?.tag === undefined || origin.tag === "" ? [] : [candidate(origin.tag, `${id} has it`)]),
      ]),
  job: async (ask: Ask) =>
    (await ask(calls.listSchedules, {}))?.schedules.map(({ id, trigger }) => candidate(id, trigger)),
  operation: async (ask: Ask) =>
    (await ask(calls.listOperations, {}))?.operations.map(({ id, kind, app_id: app, state }) =>
      candidate(id, [kind, app, state].filter((word) => word !== "").join(" ")),
    ),
  container: async (ask: Ask) =>
    (await ask(calls.listContainers, { all: true }))?.containers.map(({ name, status }) =>
      candidate(name, status),
    ),
  project: async (ask: Ask) => {
    const answer = await ask(calls.listContainers, { all: true });
    const projects = new Set(answer?.containers.flatMap(({ composeProject }) => composeProject ?? []));
    return [...projects].map((name) => candidate(name, ""));
  },
  package: async (ask: Ask) =>
    (await ask(calls.searchPackages, { query: "", source: "", limit: 1_000 }))?.packages.map(
      ({ id, summary }) => candidate(id, summary),
    ),
  archive: async (ask: Ask, [id = ""]: readonly string[]) => [
    candidate("latest", "the newest archive"),
    ...((await ask(calls.listBackups, { app_id: id, limit: 100 }))?.backups ?? []).map(
      ({ name, storage, created_at: createdAt }) =>
        candidate(name, `${storage} ${createdAt ?? ""}`.trimEnd()),
    ),
  ],
  storage: async (ask: Ask) =>
    (await ask(calls.listBackupStorages, {}))?.storages.map(({ name }) => candidate(name, "")),
  source: async (ask: Ask) =>
    (await ask(calls.listSources, {}))?.sources.map(({ name, url }) => candidate(name, url)),
  setting: async (ask: Ask, [id = ""]: readonly string[]) =>
    (await settingsOf(ask, id)).map(([key, schema]) => candidate(key, descriptionOf(schema))),
  assignment: async (ask: Ask, [id = ""]: readonly string[]) =>
    (await settingsOf(ask, id)).flatMap(([key, schema]) =>
      (choicesOf(schema) ?? [""]).map((value) => candidate(`${key}=${value}`, descriptionOf(schema))),
    ),
} as const satisfies Record<string, Source>;

/** The settings of an app with their schemas. */
async function settingsOf(ask: Ask, id: string): Promise<[key: string, schema: Json | undefined][]> {
  const answer = await ask(calls.getAppSettings, { id });
  const { properties } = (answer?.schema ?? {}) as { properties?: Record<string, Json> };
  return Object.entries(properties ?? {});
}

function descriptionOf(schema: Json | undefined): string {
  const { description, title } = (schema ?? {}) as { description?: Json; title?: Json };
  return typeof description === "string" ? description : typeof title === "string" ? title : "";
}

/** The allowed values; undefined if any value is allowed. */
function choicesOf(schema: Json | undefined): string[] | undefined {
  const { enum: values, type } = (schema ?? {}) as { enum?: Json; type?: Json };
  if (Array.isArray(values)) return values.filter((each) => typeof each !== "object").map(String);
  return type === "boolean" ? ["true", "false"] : undefined;
}

/** The kinds of names. */
export type Kind = keyof typeof sources | "node";

export async function namesOf(
  host: CliHost,
  target: NodeOptions,
  kind: Kind,
  args: readonly string[] = [],
): Promise<readonly Candidate[]> {
  try {
    if (kind === "node") return nodeNames(host);
    await using client = await clientOf(host, target);
    const ask: Ask = async (call, request) =>
      client?.call(call, request, { timeoutMs: askTimeoutMs }).catch(() => undefined);
    return (await sources[kind](ask, args)) ?? [];
  } catch {
    // Reported when the command runs.
    return [];
  }
}

function nodeNames(host: CliHost): readonly Candidate[] {
  const nodes = Object.entries(readNodes(host).nodes);
  return [
    candidate(localNode, "this machine"),
    ...nodes.map(([name, { address }]) => candidate(name, address)),
  ];
}

async function clientOf(host: CliHost, target: NodeOptions): Promise<Client | undefined> {
  const node = chooseNode(host, target);
  if (node !== undefined) {
    const { connectNode } = await import("../nodes/connect-node.ts");
    return connectNode(host, node);
  }
  const route = chooseRoute({ socketOption: target.socket, sockets: host.sockets, uid: host.uid });
  return route.kind === "socket" ? new SocketClient({ socketPath: route.path, headers: {} }) : undefined;
}

function candidate(word: string, description: string): Candidate {
  return { word, description };
}
