/** `svc app …`: commands for one installed app. */
import type { Command } from "commander";
import type { RunCommand } from "../run-command.ts";
import { addCloneCommand } from "./app-clone.ts";
import { addAttachCommand, addShellCommands } from "./app-console.ts";
import { addCopyCommand } from "./app-copy.ts";
import { addExportCommand } from "./app-export.ts";
import { addImageCommands } from "./app-image.ts";
import { addInfoCommand } from "./app-info.ts";
import { addCancelCommand, addLifecycleCommands } from "./app-lifecycle.ts";
import { addLogsCommand } from "./app-logs.ts";
import { addMoveCommand } from "./app-move.ts";
import { addPlacementCommands } from "./app-place.ts";
import { addRemoveCommand } from "./app-remove.ts";
import { addRenameCommand } from "./app-rename.ts";
import { addSettingsCommand } from "./app-settings.ts";
import { addLsCommand } from "./ls.ts";

export function addAppCommand(parent: Command, run: RunCommand): void {
  const app = parent.command("app").description("inspect and manage installed apps");
  addLsCommand(app, run);
  addLifecycleCommands(app, run);
  addCancelCommand(app, run);
  addLogsCommand(app, run);
  addAttachCommand(app, run);
  addShellCommands(app, run);
  addInfoCommand(app, run);
  addImageCommands(app, run);
  addSettingsCommand(app, run);
  addRenameCommand(app, run);
  addCloneCommand(app, run);
  addCopyCommand(app, run);
  addMoveCommand(app, run);
  addPlacementCommands(app, run);
  addExportCommand(app, run);
  addRemoveCommand(app, run);
}
