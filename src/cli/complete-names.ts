/** The names that a daemon knows, for completion. */
import type { CliHost } from "./host.ts";
import { chooseRoute } from "./routing.ts";
import { calls } from "./transport/calls.ts";
import type { UnaryCall } from "./transport/calls.ts";
import { SocketClient } from "./transport/socket-client.ts";

export interface Candidate {
  readonly word: string;
  readonly description: string;
}

/** Milliseconds that a daemon has for its names: a key press must not hang. */
const askTimeoutMs = 500;

/** Calls a method of the daemon that a command would reach; undefined when it does not answer at once. */
type Ask = <Request extends object, Response>(
  call: UnaryCall<Request, Response>,
  request: Request,
) => Promise<Response | undefined>;

const sources = {
  app: async (ask: Ask) =>
    (await ask(calls.listApps, {}))?.apps.map(({ id, name, state }) => candidate(id, `${name} ${state}`)),
  job: async (ask: Ask) =>
    (await ask(calls.listSchedules, {}))?.schedules.map(({ id, trigger }) => candidate(id, trigger)),
  container: async (ask: Ask) =>
    (await ask(calls.listContainers, { all: true }))?.containers.map(({ name, status }) =>
      candidate(name, status),
    ),
  project: async (ask: Ask) => {
    const answer = await ask(calls.listContainers, { all: true });
    const projects = new Set(answer?.containers.flatMap(({ composeProject }) => composeProject ?? []));
    return [...projects].map((name) => candidate(name, ""));
  },
  storage: async (ask: Ask) =>
    (await ask(calls.listBackupStorages, {}))?.storages.map(({ name }) => candidate(name, "")),
  source: async (ask: Ask) =>
    (await ask(calls.listSources, {}))?.sources.map(({ name, url }) => candidate(name, url)),
} as const;

/** What a name can be of. */
export type Kind = keyof typeof sources;

export async function namesOf(
  host: CliHost,
  socketOption: string | undefined,
  kind: Kind,
): Promise<readonly Candidate[]> {
  const route = chooseRoute({ socketOption, sockets: host.sockets, uid: host.uid });
  if (route.kind !== "socket") return [];
  const client = new SocketClient({ socketPath: route.path, headers: {} });
  const ask: Ask = async (call, request) => {
    try {
      return await client.call(call, request, { timeoutMs: askTimeoutMs });
    } catch {
      return undefined;
    }
  };
  return (await sources[kind](ask)) ?? [];
}

function candidate(word: string, description: string): Candidate {
  return { word, description };
}
