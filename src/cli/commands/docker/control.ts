/** `svc docker start|stop|restart|pause|unpause|rm`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../output/failure.ts";
import { forEachName } from "../../for-each.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../input/prompt.ts";
import { controlLines } from "../../output/docker-table.ts";
import { calls } from "../../client/calls.ts";

interface Verb {
  readonly name: string;
  readonly action: string;
  readonly did: string;
  readonly description: string;
}

const verbs: readonly Verb[] = [
  { name: "start", action: "start", did: "Started", description: "start containers" },
  { name: "stop", action: "stop", did: "Stopped", description: "stop containers" },
  { name: "restart", action: "restart", did: "Restarted", description: "restart containers" },
  { name: "pause", action: "pause", did: "Paused", description: "freeze the processes of containers" },
  {
    name: "unpause",
    action: "unpause",
    did: "Unpaused",
    description: "unfreeze the processes of containers",
  },
  {
    name: "rm",
    action: "remove",
    did: "Removed",
    description: "remove stopped containers with their data (asks for confirmation; skip with --yes)",
  },
];

export function addControlCommands(parent: Command, run: RunCommand): void {
  for (const verb of verbs) {
    const command = parent
      .command(verb.name)
      .description(verb.description)
      .argument("[container...]", "names, IDs or ID prefixes")
      .option("-p, --project <name>", "all containers of a compose project instead")
      .addHelpText("after", help)
      .action(
        run((context, containers: string[], { project }: { project?: string }) =>
          control(context, verb, containers, project),
        ),
      );
    if (verb.name === "rm") command.alias("remove");
  }
}

const help = `
In a project, the oldest container is started first and stopped last; containers already in the requested state are skipped.
Containers of installed apps are rejected: use svc start, stop, restart or remove.
`;

async function control(
  context: CommandContext,
  verb: Verb,
  containers: readonly string[],
  project: string | undefined,
): Promise<void> {
  if ((project === undefined) === (containers.length === 0)) {
    throw new UsageError("name containers, or pass --project");
  }
  const { action } = verb;
  if (action === "remove") {
    const what = project === undefined ? containers.join(", ") : `the stopped containers of ${project}`;
    await confirmRemoval(context, {
      question: `Remove ${what}?`,
      loss: "removing a container destroys its data",
      checkTarget: async () => {
        for (const container of containers) await context.call(calls.inspectContainer, { container });
      },
    });
  }
  if (project !== undefined) {
    const result = await context.call(calls.controlContainer, { composeProject: project, action });
    if (context.json) return context.printJson(result);
    for (const line of controlLines(verb.did, result)) await context.printLine(line);
    return;
  }
  await forEachName(context, containers, {
    call: (container) => context.call(calls.controlContainer, { container, action }),
    text: (result) => controlLines(verb.did, result).join(),
  });
}
