/** `svc docker start|stop|restart|pause|unpause|rm`. */
import type { Command } from "commander";
import type { CommandContext } from "../../context.ts";
import { UsageError } from "../../failure.ts";
import { forEachName } from "../../for-each.ts";
import type { RunCommand } from "../../run-command.ts";
import { confirmRemoval } from "../../prompt.ts";
import { controlLines } from "../../render/docker-table.ts";
import { calls } from "../../transport/calls.ts";

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
  { name: "unpause", action: "unpause", did: "Unpaused", description: "let the processes go on" },
  {
    name: "rm",
    action: "remove",
    did: "Removed",
    description: "remove stopped containers with what they have written (asks first; --yes does not)",
  },
];

export function addControlCommands(parent: Command, run: RunCommand): void {
  for (const verb of verbs) {
    const command = parent
      .command(verb.name)
      .description(verb.description)
      .argument("[container...]", "names, ids or beginnings of ids")
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
Of a project, the oldest container is started first and stopped last; those that it does not apply to are passed over.
A container of an installed app is refused: use svc app.
`;

async function control(
  context: CommandContext,
  verb: Verb,
  containers: readonly string[],
  project: string | undefined,
): Promise<void> {
  if ((project === undefined) === (containers.length === 0)) {
    throw new UsageError("name containers, or a compose project with --project");
  }
  const { action } = verb;
  if (action === "remove") {
    const what = project === undefined ? containers.join(", ") : `the stopped containers of ${project}`;
    await confirmRemoval(context, {
      question: `Remove ${what}?`,
      loss: "a removed container is gone with what it has written",
      look: async () => {
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
