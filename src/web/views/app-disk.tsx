import { useSignal } from "@preact/signals";
import { useId, useMemo } from "preact/hooks";
import type { App, AppDisk } from "../../../gen/svc/v1/app_pb.ts";
import { FileService } from "../../../gen/svc/v1/file_pb.ts";
import { useLive } from "../live.ts";
import { Failure } from "../parts/failure.tsx";
import { Meter, percentOf } from "../parts/meter.tsx";
import { Text } from "../parts/text.tsx";
import { plainText, sentence } from "../plain-text.ts";
import { texts } from "../texts.ts";
import { formatBytes } from "../units.ts";
import type { ViewProps } from "../view-props.ts";
import { Usage } from "./files/usage.tsx";

const { disk } = texts;

interface Props extends Pick<ViewProps, "api" | "node"> {
  readonly app: App;
}

/** An app's disk usage, measured on request. */
export function AppDiskView(props: Props) {
  const id = useId();
  const isOpen = useSignal(false);
  return (
    <section class="card" aria-labelledby={id}>
      <h2 id={id}>{disk.title}</h2>
      <details onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
        <summary>{disk.measure}</summary>
        {isOpen.value && <Picture {...props} />}
      </details>
    </section>
  );
}

function Picture({ api, node, app: { id, directory } }: Props) {
  const files = useMemo(() => api.client(FileService), [api]);
  const { value, failure } = useLive(node, [], (signal) => api.apps.getAppDisk({ id }, { signal }), [
    api,
    id,
  ]);
  return (
    <>
      <Failure message={failure} />
      {value === undefined ? failure === "" && <p>{texts.loading}</p> : <Parts of={value} />}
      <h3>{disk.directory}</h3>
      <Usage client={files} path={directory} />
    </>
  );
}

function Parts({ of }: { of: AppDisk }) {
  const { dataBytes, repositoryBytes, imageBytes, volumes, totalBytes, unknown } = of;
  const parts: readonly (readonly [label: string, bytes: bigint])[] = [
    [disk.data, dataBytes],
    ...volumes.map(({ name, sizeBytes }) => [disk.volume(plainText(name)), sizeBytes] as const),
    [disk.program, repositoryBytes],
    ...(imageBytes === undefined ? [] : [[disk.images, imageBytes] as const]),
  ];
  return (
    <>
      <p>{disk.together(formatBytes(totalBytes))}</p>
      {unknown !== undefined && (
        <p class="notice">
          <Text of={sentence(unknown)} />
        </p>
      )}
      {parts.map(([label, bytes]) => (
        <Meter key={label} label={label} share={percentOf(bytes, totalBytes)} text={formatBytes(bytes)} />
      ))}
    </>
  );
}
