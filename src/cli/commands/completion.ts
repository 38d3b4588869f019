/** `svc completion`: scripts with which a shell asks svc for completions. */
import { Argument, type Command } from "commander";
import { completionScripts } from "../completion/completion-scripts.ts";
import type { RunCommand } from "../run-command.ts";

export function addCompletionCommand(parent: Command, run: RunCommand): void {
  parent
    .command("completion")
    .description("print the completion script of a shell")
    .addArgument(new Argument("<shell>", "the shell").choices(Object.keys(completionScripts)))
    .addHelpText("after", installHelp)
    .action(run((context, shell: keyof typeof completionScripts) => context.print(completionScripts[shell])));
}

const installHelp = `
Add one of these to the shell's start file:
  bash   source <(svc completion bash)
  zsh    source <(svc completion zsh)
  fish   svc completion fish | source
`;
