#include "merge/chat_templates.h"

namespace vitrine {
namespace {

// Written from the formats' descriptions.
constexpr NamedTemplate kTemplates[] = {
    {"chatml",
     "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama3",
     "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + "
     "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
     "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for message in messages %}{% if message['role'] == 'system' %}"
     "{% set ns.system = message['content'] + '\\n\\n' %}{% elif message['role'] == 'user' %}"
     "{{ '[INST] ' + ns.system + message['content'] + ' [/INST]' }}{% set ns.system = '' %}{% else %}"
     "{{ ' ' + message['content'] | trim + eos_token }}{% endif %}{% endfor %}"},
    {"alpaca",
     "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
     "{% elif message['role'] == 'user' %}{{ '### Instruction:\\n' + message['content'] + '\\n\\n' }}{% else %}"
     "{{ '### Response:\\n' + message['content'] + eos_token + '\\n\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}"},
    {"exaone",
     "{% for message in messages %}{% if message['role'] == 'user' %}{{ '[|user|]' + message['content'] + '\\n' }}{% else %}"
     "{{ '[|' + message['role'] + '|]' + message['content'] + '[|endofturn|]\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}"},
};

}  // namespace

std::span<const NamedTemplate> named_templates() { return kTemplates; }

}  // namespace vitrine
