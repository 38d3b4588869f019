/** `svc backup …`: archives of apps. */
import type { Command } from "commander";
import type { RunCommand } from "../../run-command.ts";
import { addCreateCommand } from "./create.ts";
import { addListCommands } from "./list.ts";
import { addArchiveCommands } from "./archive-content.ts";
import { addPolicyCommand } from "./policy.ts";
import { addRestoreCommand } from "./restore.ts";
import { addStorageCommand } from "./storage.ts";

export function addBackupCommand(parent: Command, run: RunCommand): void {
  const backup = parent
    .command("backup")
    .description("back up apps, and restore them")
    .addHelpText("after", examples);
  for (const add of [
    addCreateCommand,
    addListCommands,
    addArchiveCommands,
    addRestoreCommand,
    addPolicyCommand,
    addStorageCommand,
  ]) {
    add(backup, run);
  }
}

const examples = `
ARCHIVE is the name of an archive from svc backup ls, or "latest" for the app's newest archive of this node.

Examples:
  svc backup create hello
  svc backup create hello --storage disk --keep 7
  svc backup storage test disk
  svc backup ls hello
  svc backup verify hello latest --deep
  svc backup browse hello latest data
  svc backup get hello latest data/notes.txt > notes.txt
  svc backup restore hello latest --stop
  svc backup download hello latest > hello.tar.zst
  svc backup upload hello.tar.zst --storage disk
`;
