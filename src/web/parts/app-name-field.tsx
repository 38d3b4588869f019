import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { NodeView } from "../node-view.ts";
import { texts } from "../texts.ts";
import { TextField, bindText } from "./field.tsx";

/** Limits of `name` in an install request. */
const maxLength = 64;
const namePattern = "[a-z0-9][a-z0-9\\-]*";
const wholeName = new RegExp(`^${namePattern}$`);

interface Props {
  readonly label: ComponentChildren;
  readonly hint: ComponentChildren;
  readonly name: Signal<string>;
  readonly node: Pick<NodeView, "apps">;
}

/** The name of a new app, which becomes its ID: checked while it is typed. Empty: the daemon chooses. */
export function AppNameField({ label, hint, name, node }: Props) {
  return (
    <TextField
      {...{ label, hint, problem: problemOf(name.value.trim(), node) }}
      {...bindText(name)}
      input={{ maxLength, pattern: namePattern }}
    />
  );
}

function problemOf(name: string, { apps }: Pick<NodeView, "apps">): string | undefined {
  if (name === "") return undefined;
  if (!wholeName.test(name)) return texts.appName.invalid;
  const known = [...(apps.value?.values() ?? [])];
  return known.some((app) => app.id === name || app.name === name) ? texts.appName.taken : undefined;
}
