/** Labelled fields of forms. */
import { cloneElement, type VNode } from 'preact';
import { useId } from 'preact/hooks';

export interface FieldProps {
  readonly label: string;
  readonly hint?: string;
  /** The input, select or textarea. */
  readonly children: VNode<{ 'aria-describedby'?: string; id?: string }>;
}

export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const described = hint === undefined ? {} : { 'aria-describedby': `${id}-hint` };
  return (
    <div class="field">
      <label class="label" for={id}>
        {label}
      </label>
      {cloneElement(children, { id, ...described })}
      {hint !== undefined && (
        <span class="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
    </div>
  );
}

export interface SelectProps {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, title: string])[];
  readonly disabled?: boolean;
  readonly onChange: (value: string) => void;
}

export function Select({ label, value, options, disabled = false, onChange }: SelectProps) {
  return (
    <Field label={label}>
      <select
        value={value}
        disabled={disabled}
        onChange={({ currentTarget }) => onChange(currentTarget.value)}
      >
        {options.map(([one, title]) => (
          <option key={one} value={one}>
            {title}
          </option>
        ))}
      </select>
    </Field>
  );
}
