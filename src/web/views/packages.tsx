import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { SourceService, type ListedPackage } from "../../../gen/svc/v1/source_pb.ts";
import { useLive } from "../live.ts";
import { Failure } from "../parts/failure.tsx";
import { TextField, bindText } from "../parts/field.tsx";
import { ExternalLink } from "../parts/links.tsx";
import { Text, Texts } from "../parts/text.tsx";
import { plainText, sentence } from "../plain-text.ts";
import { pathTo } from "../route.ts";
import { texts } from "../texts.ts";
import { packageTexts as labels } from "../texts/packages.ts";
import { formatBytes } from "../units.ts";
import type { ViewProps } from "../view-props.ts";

/** Milliseconds without input before a search starts. */
const searchAfterMs = 200;
const maxShown = 60;

interface Props extends Pick<ViewProps, "api" | "node"> {
  /** Called with the chosen package. */
  onChoose: (spec: string) => void;
}

/** The packages of all sources, as searchable cards. */
export function Packages({ api, node, onChoose }: Props) {
  const client = useMemo(() => api.client(SourceService), [api]);
  const typed = useSignal("");
  const query = useSignal("");
  useEffect(() => {
    const timer = setTimeout(() => (query.value = typed.value), searchAfterMs);
    return () => clearTimeout(timer);
  }, [typed.value]);
  const { value, failure, reload } = useLive(
    node,
    [],
    (signal) => client.searchPackages({ query: query.value, limit: maxShown }, { signal }),
    [client, query.value],
  );
  return (
    <section aria-labelledby="packages">
      <h2 id="packages">{labels.title}</h2>
      <TextField label={labels.search} {...bindText(typed)} input={{ type: "search" }} />
      <Failure message={failure} />
      {value === undefined && failure === "" && <p>{texts.loading}</p>}
      {value?.errors.map(({ source, error }) => (
        <p key={source} class="notice bad">
          <Text of={labels.failed(source, sentence(error))} />{" "}
          <button type="button" onClick={reload}>
            {texts.readAgain}
          </button>
        </p>
      ))}
      {value !== undefined && (
        <>
          <p class="quiet" role="status">
            {value.total === 0 ? labels.none : labels.counted(value.packages.length, value.total)}{" "}
            <a href={pathTo("sources")}>{labels.sources}</a>
          </p>
          <ul class="cards packages" aria-label={labels.title}>
            {value.packages.map((found) => (
              <Card key={found.spec} of={found} onChoose={onChoose} />
            ))}
          </ul>
        </>
      )}
    </section>
  );
}

function Card({ of, onChoose }: Pick<Props, "onChoose"> & { of: ListedPackage }) {
  const { spec, name, summary, homepage, license, runtime, permissions, sizeBytes } = of;
  const facts = [
    license,
    texts.runtimes[runtime] ?? runtime,
    sizeBytes === undefined ? "" : labels.takes(formatBytes(sizeBytes)),
  ];
  return (
    <li class="card">
      <h3>
        <Text of={name} />
      </h3>
      <p>
        <Text of={summary} />
      </p>
      <p class="quiet">
        <Text of={facts.filter((fact) => fact !== "").join(" · ")} />{" "}
        {homepage !== "" && <ExternalLink to={homepage} />}
      </p>
      {permissions.length > 0 && (
        <>
          <p>{labels.asksFor}</p>
          <Texts of={permissions} />
        </>
      )}
      <p class="quiet">
        <code>
          <Text of={spec} />
        </code>
      </p>
      <button type="button" aria-label={labels.installOf(plainText(spec))} onClick={() => onChoose(spec)}>
        {labels.install}
      </button>
    </li>
  );
}
