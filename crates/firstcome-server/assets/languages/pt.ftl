join-title = Você vai entrar na fila
join-lead = A entrada segue a ordem de chegada.
join-button = Entrar na fila
scheduled-title = Ainda não abriu
scheduled-lead = Seu lugar está guardado. A entrada segue a ordem a partir da abertura.
draw-title = O sorteio ainda não foi feito
draw-lead = Na abertura, um sorteio dá um lugar aleatório a cada visitante que tenha entrado na fila até então. Quem entrar depois fica atrás.
drawn-lead = Um sorteio deu um lugar aleatório a cada visitante que entrou na fila antes da abertura. A entrada segue essa ordem.
late-lead = O sorteio terminou. Quem entrar agora fica atrás, por ordem de chegada.
waiting-title = Você está na fila
waiting-lead = A entrada segue a ordem de chegada.
almost-title = Falta pouco
almost-lead = Você é o próximo. Mantenha esta página aberta.
paused-title = A fila está em pausa
paused-lead = O organizador parou a entrada por enquanto. Você mantém seu lugar.
admitted-title = É a sua vez
admitted-lead = Entre antes que o tempo acabe.
admitted-button = Entrar
full-title = A fila está cheia
full-lead = Tente de novo em instantes.
expired-title = Seu lugar terminou
expired-lead = Esta página ficou sem contato por muito tempo, ou sua visita terminou.
left-title = Você saiu da fila
left-lead = Seu lugar passou para a próxima pessoa.
over-title = Esta fila está fechada
over-lead = O organizador a fechou. Ninguém mais entra.
lost-title = Sem conexão
lost-lead = A conexão caiu. Você mantém seu lugar; esta página tenta de novo sozinha.
offer-title = Assuma seu lugar neste dispositivo
offer-lead = Este link traz um lugar na fila para este dispositivo, uma única vez. No dispositivo que o tem agora, ele termina.
offer-button = Assumir o lugar
moved-title = Seu lugar mudou de dispositivo
moved-lead = Outro dispositivo o assumiu com o link e continua com ele. Esta página e seu link não levam mais a ele.
cookies-title = Permita os cookies
cookies-lead = Seu lugar fica em um cookie, e seu navegador não o guardou. Permita os cookies deste site e entre de novo na fila.
rejoin-button = Entrar de novo
work-busy = Seu navegador resolve uma pequena tarefa que freia robôs.
work-wait = Uma pequena tarefa freia robôs. Sem JavaScript, espere { $count } s e pressione o botão.
ahead = { $count ->
    [0] Ninguém à sua frente
    [one] { $count } pessoa à sua frente
   *[other] { $count } pessoas à sua frente
}
entrants = { $count ->
    [one] { $count } pessoa participa do sorteio
   *[other] { $count } pessoas participam do sorteio
}
draw-link = Conferir o sorteio
receipt-link = Guardar o recibo
wait-label = Espera prevista
wait-soon = menos de um minuto
wait-minutes = { $to ->
    [one] cerca de { $to } minuto
   *[other] { $from }–{ $to } minutos
}
wait-hours = { $to ->
    [one] cerca de { $to } hora
   *[other] { $from }–{ $to } horas
}
wait-unknown = ainda não se sabe
number-label = Seu número
progress-label = Avanço desde a chegada
opens-label = Abre em
ends-label = Tempo restante
updated-label = Última atualização
kept = Você mantém seu lugar se recarregar ou fechar esta página.
check-button = Verificar agora
auto-button = Atualizar automaticamente
leave-button = Sair da fila
move-title = Continuar em outro dispositivo
move-lead = Abra este link no outro dispositivo e assuma o lugar lá. Ele vale uma única vez: não o mostre a ninguém.
soldout-title = Esgotado
soldout-lead = Todos já foram entregues.
early-title = Ainda não abriu
early-lead = Você pode obter o seu a partir da abertura. Esta página abre sozinha.
claim-title = Pode obter o seu
claim-lead = Obtenha o seu agora. Um por pessoa.
claim-button = Obter agora
claimed-title = É seu
claimed-lead = Anote este código. Esta página o mostra de novo neste navegador.
ended-title = Terminou
ended-lead = Aqui nada mais é entregue.
serial-label = Seu número de série
code-label = Seu código
remaining = { $count ->
    [0] não resta nenhum
    [one] resta { $count }
    [many] restam { $count }
   *[other] restam { $count }
}
language-label = Idioma
