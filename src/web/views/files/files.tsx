import { useMemo } from "preact/hooks";
import { FileService, type FileEntry } from "../../../../gen/svc/v1/file_pb.ts";
import { useLive } from "../../live.ts";
import { Failure } from "../../parts/failure.tsx";
import { Heading } from "../../parts/heading.tsx";
import { RunningOperations } from "../../parts/running-operations.tsx";
import { Text } from "../../parts/text.tsx";
import { lastOf } from "../../names.ts";
import { plainText } from "../../plain-text.ts";
import { pathTo } from "../../route.ts";
import { texts } from "../../texts.ts";
import { fileTexts as labels } from "../../texts/files.ts";
import type { ViewProps } from "../../view-props.ts";
import { Directory } from "./directory.tsx";
import { FileContent } from "./file-content.tsx";
import { linkTo, readDirectory, type Listing } from "./paths.ts";

type Found =
  | ({ readonly kind: "directory" } & Listing)
  | { readonly kind: "file" | "special"; readonly entry: FileEntry };

/** `#/files/…`: a directory or a file, accessed with the user's permissions on the host. */
export function FilesView({ api, node, args }: ViewProps) {
  const client = useMemo(() => api.client(FileService), [api]);
  const path = `/${args.join("/")}`;
  const live = useLive(
    node,
    // A copy may finish after its dialog was lost with a reload.
    ["operation.finished"],
    async (signal): Promise<Found> => {
      const entry = await client.statPath({ path }, { signal });
      if (entry.type === "file") return { kind: "file", entry };
      if (entry.type !== "directory" && entry.type !== "symlink") return { kind: "special", entry };
      try {
        return { kind: "directory", ...(await readDirectory(client, path, signal)) };
      } catch (error) {
        // A symlink may point to a file.
        if (entry.type === "symlink") return { kind: "file", entry };
        throw error;
      }
    },
    [client, path],
  );
  const { failure } = live;
  const uid = node.status.value?.caller?.uid;
  // Until the new path is read, the value belongs to the previous path.
  const value = live.value !== undefined && pathOf(live.value) === path ? live.value : undefined;
  // The view stays while the daemon does not respond, so that started actions can report and drafts are not
  // lost.
  const isShown = failure === "" || failure === texts.unreachable;
  return (
    <>
      <Heading title={path === "/" ? texts.files.title : plainText(lastOf(path))} />
      <nav class="crumbs" aria-label={labels.path}>
        <a href={pathTo("files")}>{labels.root}</a>
        {args.map((name, at) => (
          <a
            key={at}
            href={pathTo("files", ...args.slice(0, at + 1))}
            aria-current={at === args.length - 1 ? "page" : undefined}
          >
            <Text of={name} />
          </a>
        ))}
      </nav>
      {path === "/" && <AppDirectories node={node} />}
      {/* Work on files has no app. */}
      <RunningOperations node={node} appId="" />
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {isShown && value?.kind === "directory" && (
        <Directory key={path} {...{ api, node, client, path }} listing={value} onDone={live.reload} />
      )}
      {value?.kind === "file" && uid !== undefined && (
        <FileContent key={path} api={api} client={client} entry={value.entry} uid={uid} />
      )}
      {failure === "" && value?.kind === "special" && <p>{labels.special}</p>}
    </>
  );
}

function pathOf(found: Found): string {
  return found.kind === "directory" ? found.path : found.entry.path;
}

function AppDirectories({ node }: Pick<ViewProps, "node">) {
  const apps = [...(node.apps.value?.values() ?? [])].filter(({ directory }) => directory !== "");
  if (apps.length === 0) return null;
  return (
    <section class="card" aria-labelledby="app-directories">
      <h2 id="app-directories">{labels.appDirectories}</h2>
      <ul class="inline">
        {apps.map(({ id, directory }) => (
          <li key={id}>
            <a href={linkTo(directory)}>
              <Text of={id} />
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}
