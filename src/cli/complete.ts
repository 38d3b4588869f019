/** What can come next on a command line: asked by the scripts of `svc completion`. */
import type { Command, Option } from "commander";
import type { CliHost } from "./host.ts";
import { escapeCell } from "./render/escape.ts";
import { chooseRoute } from "./routing.ts";
import { calls } from "./transport/calls.ts";
import type { UnaryCall } from "./transport/calls.ts";
import { SocketClient } from "./transport/socket-client.ts";

interface Candidate {
  readonly word: string;
  readonly description: string;
}

/** Milliseconds that a daemon has for its apps, jobs or containers: a key press must not hang. */
const askTimeoutMs = 500;

/** Prints one candidate per line, `word<TAB>description`. @param words what follows `svc`; the last is being typed */
export async function complete(host: CliHost, program: Command, words: readonly string[]): Promise<void> {
  const current = words.at(-1) ?? "";
  const place = walk(program, words.slice(0, -1));
  const candidates = await candidatesAt(host, place, current);
  const fitting = candidates.filter(({ word }) => word.startsWith(current));
  host.stdout.write(
    fitting.map(({ word, description }) => `${escapeCell(word)}\t${escapeCell(description)}\n`).join(""),
  );
}

interface Place {
  readonly command: Command;
  /** The words that stand as arguments of the command. */
  readonly args: readonly string[];
  /** The option that waits for its value. */
  readonly option: Option | undefined;
  readonly socket: string | undefined;
}

function walk(program: Command, words: readonly string[]): Place {
  let command = program;
  let args: string[] = [];
  let option: Option | undefined;
  let socket: string | undefined;
  for (const word of words) {
    if (option !== undefined) {
      if (option.long === "--socket") socket = word;
      option = undefined;
    } else if (word.startsWith("-")) {
      const found = command.options.find(({ short, long }) => word === short || word === long);
      if (found?.required === true) option = found;
    } else {
      const child = command.commands.find((each) => each.name() === word || each.aliases().includes(word));
      if (child === undefined) args.push(word);
      else [command, args] = [child, []];
    }
  }
  return { command, args, option, socket };
}

async function candidatesAt(host: CliHost, place: Place, current: string): Promise<readonly Candidate[]> {
  const { command, args, option } = place;
  if (option !== undefined) return optionCandidates(host, place, option);
  if (current.startsWith("-")) {
    return command.options.map(({ long, short, description }) => ({
      word: long ?? short ?? "",
      description,
    }));
  }
  const commands = command.commands.map((child) => ({
    word: child.name(),
    description: child.description(),
  }));
  return [...(args.length === 0 ? commands : []), ...(await argumentCandidates(host, place))];
}

/** The shell completes file names itself; other values are anybody's guess. */
async function optionCandidates(
  host: CliHost,
  { socket }: Place,
  { argChoices, long }: Option,
): Promise<readonly Candidate[]> {
  if (argChoices !== undefined) return argChoices.map((word) => ({ word, description: "" }));
  if (long === "--project") return askProjects(host, socket);
  return long === "--app" ? askApps(host, socket) : [];
}

async function argumentCandidates(host: CliHost, place: Place): Promise<readonly Candidate[]> {
  const { command, args } = place;
  // A group whose default command takes an app: `svc app settings ID`.
  const taker = command.commands.find((child) => child.name() === "get") ?? command;
  const expected = taker.registeredArguments[args.length] ?? taker.registeredArguments.at(-1);
  if (expected === undefined || (args.length >= taker.registeredArguments.length && !expected.variadic))
    return [];
  if (expected.argChoices !== undefined)
    return expected.argChoices.map((word) => ({ word, description: "" }));
  switch (expected.name()) {
    case "id":
      return (await askApps(host, place.socket)).filter(({ word }) => !args.includes(word));
    case "job":
      return (await askJobs(host, place.socket)).filter(({ word }) => !args.includes(word));
    case "container":
      return (await askContainers(host, place.socket)).filter(({ word }) => !args.includes(word));
    case "method":
      return listMethods();
    default:
      return [];
  }
}

async function askApps(host: CliHost, socketOption: string | undefined): Promise<readonly Candidate[]> {
  const answer = await ask(host, socketOption, calls.listApps);
  return answer?.apps.map((app) => ({ word: app.id, description: `${app.name} ${app.state}` })) ?? [];
}

async function askJobs(host: CliHost, socketOption: string | undefined): Promise<readonly Candidate[]> {
  const answer = await ask(host, socketOption, calls.listSchedules);
  return answer?.schedules.map((job) => ({ word: job.id, description: job.trigger })) ?? [];
}

async function askContainers(host: CliHost, socketOption: string | undefined): Promise<readonly Candidate[]> {
  const answer = await ask(host, socketOption, calls.listContainers, { all: true });
  return answer?.containers.map(({ name, status }) => ({ word: name, description: status })) ?? [];
}

async function askProjects(host: CliHost, socketOption: string | undefined): Promise<readonly Candidate[]> {
  const answer = await ask(host, socketOption, calls.listContainers, { all: true });
  const projects = new Set(answer?.containers.flatMap(({ composeProject }) => composeProject ?? []));
  return [...projects].map((word) => ({ word, description: "" }));
}

/** What the daemon that a command would reach answers; undefined when it does not answer at once. */
async function ask<Request extends object, Response>(
  host: CliHost,
  socketOption: string | undefined,
  call: UnaryCall<Request, Response>,
  request?: Request,
): Promise<Response | undefined> {
  const route = await chooseRoute({ socketOption, sockets: host.sockets, uid: host.uid });
  if (route.kind !== "socket") return undefined;
  const client = new SocketClient({ socketPath: route.path, headers: {} });
  try {
    return await client.call(call, request ?? ({} as Request), { timeoutMs: askTimeoutMs });
  } catch {
    return undefined;
  }
}

async function listMethods(): Promise<readonly Candidate[]> {
  const { methodPolicies } = await import("../../gen/svc/v1/methods.ts");
  return Object.keys(methodPolicies).map((name) => ({
    word: name.replace("svc.v1.", "").replace("/", "."),
    description: "",
  }));
}
