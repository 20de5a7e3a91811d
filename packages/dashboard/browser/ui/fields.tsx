/** Labelled fields of forms. */
import { cloneElement, type InputHTMLAttributes, type VNode } from 'preact';
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

export interface TextFieldProps {
  readonly label: string;
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly hint?: string;
  readonly placeholder?: string;
  readonly required?: boolean;
  readonly disabled?: boolean;
  readonly pattern?: string;
  readonly type?: 'text' | 'url' | 'password';
  readonly inputMode?: 'numeric' | 'decimal';
  /** The id of a list of suggestions. */
  readonly list?: string;
  readonly isCode?: boolean;
}

export function TextField({ label, hint, onChange, isCode = false, ...input }: TextFieldProps) {
  // The types of Preact know which attributes go with which type of input, one by one.
  const attributes = input as InputHTMLAttributes<HTMLInputElement>;
  return (
    <Field label={label} {...(hint === undefined ? {} : { hint })}>
      <input
        {...attributes}
        class={isCode ? 'mono' : undefined}
        // A browser must not take a secret for the password of this page.
        autocomplete={input.type === 'password' ? 'new-password' : 'off'}
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
      />
    </Field>
  );
}

/** A whole number, or with `isDecimal` one with a fraction. */
export function NumberField({
  isDecimal = false,
  ...field
}: Omit<TextFieldProps, 'type' | 'inputMode' | 'pattern'> & { readonly isDecimal?: boolean }) {
  return (
    <TextField
      {...field}
      inputMode={isDecimal ? 'decimal' : 'numeric'}
      pattern={isDecimal ? '[0-9]*[.]?[0-9]*' : '[0-9]*'}
    />
  );
}

export interface CheckFieldProps {
  readonly label: string;
  readonly checked: boolean;
  readonly onChange: (checked: boolean) => void;
}

export function CheckField({ label, checked, onChange }: CheckFieldProps) {
  return (
    <label class="row">
      <input
        type="checkbox"
        checked={checked}
        onChange={({ currentTarget }) => onChange(currentTarget.checked)}
      />
      {label}
    </label>
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
