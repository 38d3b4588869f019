/** Rules of a manifest's settings beyond its schema. */
import type {
  ManifestDocument,
  SettingDocument,
  SettingPartDocument,
} from "../../../gen/manifest-document.ts";
import type { RuleProblem, Template } from "../manifest/rule-problem.ts";
import { isPattern } from "./settings-schema.ts";
import { placeholdersIn } from "../manifest/placeholders.ts";
import type { DocumentPath } from "../manifest/yaml-document.ts";

/** Limit for unique lists of objects, whose items are compared pairwise. */
const maxUniqueItems = 1_000;

/** Every rule that the settings of `manifest` break; `templates` are its texts with placeholders. */
export function settingsProblems(manifest: ManifestDocument, templates: readonly Template[]): RuleProblem[] {
  const { settings } = manifest;
  if (settings === undefined) return [];
  const names = Object.keys(settings.properties);
  const used = new Set([
    ...templates.flatMap(({ text }) => placeholdersIn(text)),
    ...(manifest.ports ?? [])
      .flatMap(({ setting, address_setting: address }) => [setting ?? [], address ?? []])
      .flat()
      .map((name) => `settings.${name}`),
  ]);
  return [
    ...(settings.required ?? []).flatMap((name, index): RuleProblem[] =>
      names.includes(name)
        ? []
        : [
            {
              path: ["settings", "required", index],
              message: `settings.required refers to an unknown setting "${name}"`,
            },
          ],
    ),
    ...Object.entries(settings.properties).flatMap(([name, setting]) => {
      const path = ["settings", "properties", name];
      return [
        ...reachProblems(path, name, setting, used),
        ...argProblems(path, name, setting),
        ...partProblems(path, setting, 0),
      ];
    }),
    ...fileProblems(settings.properties),
  ];
}

function reachProblems(
  path: DocumentPath,
  name: string,
  setting: SettingDocument,
  used: ReadonlySet<string>,
): RuleProblem[] {
  const reaches = setting.env ?? setting.arg ?? setting.file;
  if (reaches !== undefined || used.has(`settings.${name}`)) return [];
  return [
    {
      path,
      message: `the setting "${name}" has no effect; add env, arg or file, or use \${settings.${name}}`,
    },
  ];
}

function argProblems(path: DocumentPath, name: string, setting: SettingDocument): RuleProblem[] {
  const found = [setting.arg ?? []].flat().flatMap(placeholdersIn);
  const unknown = found.find((placeholder) => placeholder !== "value");
  if (unknown !== undefined) {
    return [
      { path: [...path, "arg"], message: `the arg of "${name}" supports only \${value}, not \${${unknown}}` },
    ];
  }
  if (setting.arg !== undefined && found.length === 0 && setting.type !== "boolean") {
    return [
      {
        path: [...path, "arg"],
        message: `the arg of "${name}" has no \${value}, so its type must be boolean`,
      },
    ];
  }
  return [];
}

/** Two settings may share a file only if both have pointers, to different places. */
function fileProblems(properties: Readonly<Record<string, SettingDocument>>): RuleProblem[] {
  const pointers = new Map<string, string[]>();
  return Object.entries(properties).flatMap(([name, { file }]): RuleProblem[] => {
    if (file === undefined) return [];
    const path = ["settings", "properties", name, "file"];
    const pointer = file.pointer ?? "";
    if (/\/(__proto__|constructor|prototype)(\/|$)/.test(pointer)) {
      return [{ path, message: `the pointer ${pointer} has a reserved name` }];
    }
    const taken = pointers.get(file.path) ?? [];
    pointers.set(file.path, [...taken, pointer]);
    const clash = taken.find(
      (other) => `${pointer}/`.startsWith(`${other}/`) || `${other}/`.startsWith(`${pointer}/`),
    );
    if (clash === undefined) return [];
    return [{ path, message: `another setting already writes ${file.path}${clash}` }];
  });
}

function partProblems(path: DocumentPath, part: SettingPartDocument, depth: number): RuleProblem[] {
  if (depth > 8) return [{ path, message: "settings are nested deeper than 8 levels" }];
  const problems: RuleProblem[] = [];
  if (part.pattern !== undefined && !isPattern(part.pattern)) {
    problems.push({
      path: [...path, "pattern"],
      message: `the pattern ${part.pattern} is not a valid regular expression`,
    });
  }
  if (part.uniqueItems === true && (part.maxItems ?? Infinity) > maxUniqueItems) {
    const message = `uniqueItems requires a maxItems of at most ${maxUniqueItems}`;
    problems.push({ path: [...path, "uniqueItems"], message });
  }
  const missing = (part.required ?? []).find((name) => !Object.hasOwn(part.properties ?? {}, name));
  if (missing !== undefined) {
    problems.push({
      path: [...path, "required"],
      message: `required refers to an unknown property "${missing}"`,
    });
  }
  if (part.items !== undefined) problems.push(...partProblems([...path, "items"], part.items, depth + 1));
  for (const [name, child] of Object.entries(part.properties ?? {})) {
    problems.push(...partProblems([...path, "properties", name], child, depth + 1));
  }
  return problems;
}
