/** `svc ls --all-nodes`: queries all nodes at once, and reports those that do not respond. */
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { describeFailure, failureJson, ReportedError } from "../output/failure.ts";
import { chooseNode } from "../nodes/choose-node.ts";
import { localNode, readNodes } from "../nodes/node-file.ts";
import { appColumns } from "../output/app-table.ts";
import type { Column } from "../output/table.ts";
import { chooseRoute } from "../client/routing.ts";
import type { App } from "../client/calls.ts";
import { listAllApps } from "../pages.ts";

/** Seconds for each node, without `--timeout`. */
const defaultTimeoutSecs = 10;

type NodeApps =
  | { readonly node: string; readonly apps: readonly App[] }
  | { readonly node: string; readonly error: unknown };

/** @param matches selects the apps to show */
export async function showAllNodes(context: CommandContext, matches: (app: App) => boolean): Promise<void> {
  const { options } = context;
  const timeoutSecs = options.timeout ?? defaultTimeoutSecs;
  const responses = await Promise.all(
    nodesOf(context).map(([node, nodeContext]) => ask(nodeContext, { node, timeoutSecs })),
  );
  const hasApps = responses.some((answer) => "apps" in answer && answer.apps.length > 0);
  const answers = responses.map((answer) =>
    "apps" in answer ? { ...answer, apps: answer.apps.filter(matches) } : answer,
  );
  const failures = answers.flatMap((answer) => ("error" in answer ? [answer] : []));
  if (context.json) {
    const entry = (answer: NodeApps) =>
      "error" in answer ? { node: answer.node, ...failureJson(answer.error) } : answer;
    await context.printJson({ nodes: answers.map(entry) });
  } else {
    const rows = answers.flatMap((answer) =>
      "apps" in answer ? answer.apps.map((app) => ({ ...app, node: answer.node })) : [],
    );
    const columns: Column<App & { readonly node: string }>[] = [
      { title: "NODE", value: ({ node }) => node, isKey: true },
      ...appColumns(context.host.now(), rows),
    ];
    const none = hasApps ? "No installed app matches." : "No apps are installed on the nodes that responded.";
    await context.printTable(columns, rows, none);
    for (const { node, error } of failures) {
      context.note(`svc: ${node} did not respond: ${describeFailure(error).message}`);
    }
  }
  const [first] = failures;
  if (first !== undefined) throw new ReportedError(describeFailure(first.error).exitCode);
}

/** This host if it may have a daemon, all named nodes, and the unnamed node of the command line. */
function nodesOf(context: CommandContext): readonly (readonly [name: string, there: CommandContext])[] {
  const { host, options } = context;
  const route = chooseRoute({ socketOption: options.socket, sockets: host.sockets, uid: host.uid });
  const { nodes } = readNodes(host);
  const names = [...(route.kind === "socket" ? [localNode] : []), ...Object.keys(nodes)];
  const meant = chooseNode(host, options);
  const isKnown =
    meant === undefined ||
    names.includes(meant.name) ||
    Object.values(nodes).some(({ address }) => address === meant.address);
  return [
    ...names.map((name) => [name, context.at(name)] as const),
    ...(isKnown ? [] : [[meant.name, context.at({ host: meant.address })] as const]),
  ];
}

interface Question {
  readonly node: string;
  readonly timeoutSecs: number;
}

async function ask(nodeContext: CommandContext, { node, timeoutSecs }: Question): Promise<NodeApps> {
  await using _closed = nodeContext;
  const { promise: late, reject } = Promise.withResolvers<never>();
  const end = () => reject(new SvcError("deadline_exceeded", `not within ${timeoutSecs} s`));
  const timer = setTimeout(end, timeoutSecs * 1000);
  try {
    // All pages, however many the daemon has.
    return { node, apps: await Promise.race([listAllApps(nodeContext), late]) };
  } catch (error) {
    return { node, error };
  } finally {
    clearTimeout(timer);
  }
}
