/** `svc app attach` and `svc shell`: a terminal in an app. */
import { Option, type Command } from "commander";
import type { CommandContext } from "../context.ts";
import type { ReasonPayloads } from "../../errors.ts";
import { advised, type Advice } from "../output/advice.ts";
import { shellWord } from "../../lib/shell-word.ts";
import { examples } from "../examples.ts";
import { ReportedError, UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";

interface ConsoleOptions {
  readonly service?: string;
}

const serviceOption = ["--service <name>", "the service, in a compose project with several"] as const;
const detachHelp = "\nCtrl-P Ctrl-Q detaches. The exit code is the program's.\n";
const directoryHelp =
  "In a process app, the working directory has the package's files; the data is in $SVC_DATA_DIR.\n";

export function addAttachCommand(parent: Command, run: RunCommand): void {
  parent
    .command("attach")
    .description("open the terminal of an app, or the console that its package names")
    .argument("<id>", "the app")
    .option(...serviceOption)
    .addHelpText("after", detachHelp)
    .action(run((context, id: string, options: ConsoleOptions) => open(context, id, "attach", [], options)));
}

export function addShellCommands(parent: Command, run: RunCommand): void {
  const shell = parent
    .command("shell")
    .description("open a shell in an app, as its owner, in its directory or container")
    .argument("<id>", "the app")
    .argument("[command...]", "the command to run instead of a shell, after --")
    .option(...serviceOption)
    .addHelpText(
      "after",
      `${detachHelp}${directoryHelp}${examples("svc shell hello", "svc shell hello -- node")}`,
    )
    .action(
      run((context, id: string, command: string[], options: ConsoleOptions) =>
        open(context, id, "shell", command, options),
      ),
    );
  const exec = parent
    .command("exec")
    .description("run a command in an app, as its owner, in its directory or container")
    .argument("<id>", "the app")
    .argument("<command...>", "the command with its arguments")
    .option(...serviceOption)
    .addHelpText("after", execHelp)
    .passThroughOptions()
    .action(
      run((context, id: string, command: string[], options: ConsoleOptions) =>
        open(context, id, "shell", ...withoutService(command, options)),
      ),
    );
  for (const flag of dockerFlags) for (const command of [exec, shell]) command.addOption(flag);
}

/** The command without the option between the app and the command: `exec ID --service NAME -- CMD`. */
function withoutService(
  words: readonly string[],
  options: ConsoleOptions,
): [command: readonly string[], options: ConsoleOptions] {
  const [first = "", second] = words;
  const isSeparate = first === "--service" && second !== undefined;
  const service = isSeparate ? second : /^--service=(.*)$/s.exec(first)?.[1];
  const rest = service === undefined ? words : words.slice(isSeparate ? 2 : 1);
  const command = rest[0] === "--" ? rest.slice(1) : rest;
  if (command.length === 0)
    throw new UsageError("missing argument <command>: the command with its arguments");
  return [command, service === undefined ? options : { service }];
}

const execHelp = `
Options after the app belong to the command, except for --service. The exit code is the command's.
${directoryHelp}${examples("svc exec hello ls -l", "svc exec hello sh -c 'ls $SVC_DATA_DIR'", "svc exec shop --service db -- psql -U shop")}`;

/** Flags of `docker exec`. A terminal is used if there is one. */
const dockerFlags = [new Option("-i, --interactive").hideHelp(), new Option("-t, --tty").hideHelp()];

/** For a command without `--service`. People type the service where docker compose has it: `svc exec shop web ls`. */
function adviceOnService(appId: string, session: "attach" | "shell", command: readonly string[]): Advice {
  return ({ reason, payload }) => {
    if (reason !== "invalid_request") return undefined;
    const { violations = [] } = payload as ReasonPayloads["invalid_request"];
    const { description = "" } = violations.find(({ field }) => field === "service") ?? {};
    const services = /^must be one of (.*)$/.exec(description)?.[1]?.split(", ");
    if (services === undefined) return undefined;
    const [typed = "", ...others] = command;
    const isService = services.includes(typed);
    const words = (isService ? others : command).map(shellWord);
    const name = session === "attach" ? "app attach" : words.length === 0 ? "shell" : "exec";
    const service = isService ? typed : (services[0] ?? "");
    return `such as: ${["svc", name, appId, "--service", service, ...words].join(" ")}`;
  };
}

async function open(
  context: CommandContext,
  appId: string,
  session: "attach" | "shell",
  command: readonly string[],
  { service = "" }: ConsoleOptions,
): Promise<void> {
  const { runTerminal } = await import("../terminal-session.ts");
  const exitCode = await runTerminal(context, { appId, session, command, service }).catch(
    (error: unknown) => {
      throw service === "" ? advised(error, adviceOnService(appId, session, command), context) : error;
    },
  );
  if (exitCode !== 0) throw new ReportedError(exitCode);
}
