/** `svc file …`: files of the daemon's host, accessed as the calling user. */
import type { Command } from "commander";
import type { RunCommand } from "../../run-command.ts";
import { addArchiveCommands } from "./archive.ts";
import { addChangeCommands } from "./change.ts";
import { addContentCommands } from "./content.ts";
import { addListCommands } from "./list.ts";
import { addSearchCommands } from "./search.ts";

export function addFileCommand(parent: Command, run: RunCommand): void {
  const file = parent
    .command("file")
    .description("list, read and change files on the daemon's host, with your permissions")
    .addHelpText("after", examples);
  for (const add of [
    addListCommands,
    addContentCommands,
    addChangeCommands,
    addArchiveCommands,
    addSearchCommands,
  ])
    add(file, run);
}

const examples = `
PATH is an absolute path on the daemon's host, or APP:PATH for a path in an app's directory.

Examples:
  svc file ls hello:data
  svc file put notes.txt hello:data/notes.txt
  svc file get hello:data/notes.txt copy.txt
  svc file cat hello:data/notes.txt
  svc file mv hello:data/notes.txt hello:data/old.txt
  svc file chmod 0600 hello:data/old.txt
  svc file rm hello:data/old.txt
  svc file tar hello:data/notes.tar.zst hello:data/notes.txt
  svc file untar hello:data/notes.tar.zst hello:data/copy
  svc file du hello:data
  svc file find hello:data '*.log'
  svc file grep -i error hello:data
  svc file tail -f hello:data/app.log
`;
